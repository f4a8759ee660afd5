//! The keys and values that a server keeps.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::store::set_already;

/// The approximate cost of a key besides its bytes and those of its value.
const ENTRY_BYTES: usize = 128;

/// Keys that are set once, up to a number of bytes in all.
pub(super) struct KeptValues {
    values: HashMap<String, Arc<[u8]>>,
    bytes: usize,
    bytes_max: usize,
}

impl KeptValues {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            values: HashMap::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<[u8]>> {
        self.values.get(key)
    }

    /// Sets a key, or returns the reason that it cannot be set.
    pub(super) fn set(&mut self, key: String, value: Vec<u8>) -> Result<(), String> {
        let more = key.len() + value.len() + ENTRY_BYTES;
        match self.values.entry(key) {
            Entry::Occupied(there) if **there.get() == *value => Ok(()),
            Entry::Occupied(there) => Err(set_already(there.key())),
            Entry::Vacant(vacant) if self.bytes + more > self.bytes_max => Err(format!(
                "there is no room for the {more} bytes of {:?}: the store keeps at most {} in all",
                vacant.key(),
                self.bytes_max
            )),
            Entry::Vacant(vacant) => {
                self.bytes += more;
                vacant.insert(value.into());
                Ok(())
            }
        }
    }
}
