//! The memory that an endpoint has registered beside its regions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use crate::loopback::messages::locked;
use crate::{Iovec, RegistrationKey};

/// What is registered now.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<Known>);

#[derive(Default)]
struct Known {
    next: u64,
    ranges: BTreeMap<RegistrationKey, Range<usize>>,
}

impl Registrations {
    pub(crate) fn register(&self, memory: Iovec) -> RegistrationKey {
        let mut known = locked(&self.0);
        known.next += 1;
        let key = RegistrationKey(known.next);
        known.ranges.insert(key, range(memory));
        key
    }

    pub(crate) fn deregister(&self, key: RegistrationKey) {
        locked(&self.0).ranges.remove(&key);
    }

    /// Whether memory lies in what is registered under a key.
    pub(super) fn covers(&self, key: RegistrationKey, memory: Iovec) -> bool {
        let memory = range(memory);
        let known = locked(&self.0);
        let registered = known.ranges.get(&key);
        registered.is_some_and(|range| range.start <= memory.start && memory.end <= range.end)
    }
}

fn range(memory: Iovec) -> Range<usize> {
    let start = memory.start() as usize;
    start..start + memory.len()
}
