//! Statics that a forked child has anew.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::fork;

/// A value of which every process has its own. A forked child begins with a new one: what it
/// inherits may be locked by a thread that it does not have, and speaks of what is its parent's.
pub struct PerProcess<T> {
    /// The last one made, which is never freed: others may be looking at it.
    current: AtomicPtr<Made<T>>,
    new: fn() -> T,
}

struct Made<T> {
    /// The process (counted in forks) that it was made in.
    generation: u64,
    value: T,
}

impl<T: Sync> PerProcess<T> {
    /// One that is made when it is first asked for.
    pub const fn new(new: fn() -> T) -> Self {
        PerProcess {
            current: AtomicPtr::new(ptr::null_mut()),
            new,
        }
    }

    /// This process's own.
    pub fn get(&'static self) -> &'static T {
        let generation = fork::generation();
        let before = self.current.load(Ordering::Acquire);
        // SAFETY: null, or made below, and never freed.
        if let Some(made) = unsafe { before.as_ref() }
            && made.generation == generation
        {
            return &made.value;
        }
        let made = Box::into_raw(Box::new(Made {
            generation,
            value: (self.new)(),
        }));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let exchanged = (self.current).compare_exchange(before, made, success, failure);
        let current = match exchanged {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above, and shown to nobody.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: made here or by another thread of this process, and never freed.
        &unsafe { &*current }.value
    }
}
