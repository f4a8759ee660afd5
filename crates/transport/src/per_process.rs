//! Statics that are initialized anew in a forked child.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::fork;

/// A value of which every process has its own. A forked child begins with a new one: the inherited
/// one may be locked by a thread that the child does not have, and describes the parent.
pub struct PerProcess<T> {
    /// The current value. Old ones are never freed: other threads may be reading them.
    current: AtomicPtr<GenerationValue<T>>,
    new: fn() -> T,
}

struct GenerationValue<T> {
    /// The generation (number of forks) that it was made in.
    generation: u64,
    value: T,
}

impl<T: Sync> PerProcess<T> {
    /// A value that is made on first use.
    pub const fn new(new: fn() -> T) -> Self {
        PerProcess {
            current: AtomicPtr::new(ptr::null_mut()),
            new,
        }
    }

    /// This process's value.
    pub fn get(&'static self) -> &'static T {
        let generation = fork::generation();
        let before = self.current.load(Ordering::Acquire);
        // SAFETY: null, or made below, and never freed.
        if let Some(made) = unsafe { before.as_ref() }
            && made.generation == generation
        {
            return &made.value;
        }
        let made = Box::into_raw(Box::new(GenerationValue {
            generation,
            value: (self.new)(),
        }));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let exchanged = (self.current).compare_exchange(before, made, success, failure);
        let current = match exchanged {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above, and not shared yet.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: made here or by another thread of this process, and never freed.
        &unsafe { &*current }.value
    }
}
