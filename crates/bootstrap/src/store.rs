//! The small key-value store through which ranks find each other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_call::Error;

/// How soon a waiting call detects that it has been cancelled.
pub(crate) const CANCEL_POLL: Duration = Duration::from_millis(40);

/// Gathers the status of this process's job, as text; None once the job has ended.
pub type StatusReport = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Keys and values that all ranks see. A key is set once.
pub trait Store: Send + Sync {
    /// Sets a key. Setting it to its present value again is no error; another value is one, in the
    /// stores of this crate.
    ///
    /// # Errors
    /// [`Error::Config`] if the key has another value or the pair is not allowed, or the store's
    /// failure.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error>;

    /// Waits until the key is set, and returns its value.
    ///
    /// Past the deadline the error is [`Error::Timeout`]; once `cancel` is true it is
    /// [`Error::Aborted`], within 50 ms.
    ///
    /// # Errors
    /// [`Error::Timeout`] past the deadline; [`Error::Aborted`] within 50 ms once `cancel` is true;
    /// or the store's failure.
    fn get(&self, key: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Vec<u8>, Error>;

    /// Waits until all keys are set, and returns their values.
    ///
    /// # Errors
    /// As for [`Store::get`].
    fn multi_get(
        &self,
        keys: &[String],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        keys.iter()
            .map(|key| self.get(key, deadline, cancel))
            .collect()
    }

    /// The store's report of processes that it has refused.
    fn refusals(&self) -> Option<String> {
        None
    }

    /// Answers programs that ask the store for the job's status by `report`, from now on. A store
    /// that this process does not serve ignores it.
    fn answer_status(&self, report: StatusReport) {
        drop(report);
    }

    /// Whether only processes of the job can use the store.
    fn is_authenticated(&self) -> bool {
        false
    }

    /// Whether the key is set already.
    ///
    /// # Errors
    /// The store's failure.
    fn has(&self, key: &str) -> Result<bool, Error> {
        let soon = Instant::now() + Duration::from_millis(10);
        match self.get(key, soon, &AtomicBool::new(false)) {
            Ok(_) => Ok(true),
            Err(Error::Timeout { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A store within one process.
#[derive(Default, Debug)]
pub struct MemoryStore {
    values: Mutex<HashMap<String, Vec<u8>>>,
    changed: Condvar,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        match self.lock().entry(key.into()) {
            Entry::Vacant(vacant) => {
                vacant.insert(value.into());
            }
            Entry::Occupied(there) if there.get() == value => {}
            Entry::Occupied(_) => return Err(Error::Config(set_already(key))),
        }
        self.changed.notify_all();
        Ok(())
    }

    fn get(&self, key: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Vec<u8>, Error> {
        let started = Instant::now();
        let mut values = self.lock();
        loop {
            if let Some(value) = values.get(key) {
                return Ok(value.clone());
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(key_timeout(key, now - started));
            }
            let nap = CANCEL_POLL.min(deadline - now);
            values = self
                .changed
                .wait_timeout(values, nap)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn has(&self, key: &str) -> Result<bool, Error> {
        Ok(self.lock().contains_key(key))
    }
}

/// The reason that a key cannot be set to another value.
pub(crate) fn set_already(key: &str) -> String {
    format!("the key {key:?} is set already, to another value: keys are set once")
}

/// The error of a `get` whose key was not set in time.
pub(crate) fn key_timeout(key: &str, after: Duration) -> Error {
    Error::Timeout {
        operation: "rendezvous".into(),
        waiting_for: format!("the store's key {key:?} to be set"),
        after,
    }
}

/// A part of another store: every key begins with the prefix.
pub struct PrefixStore<'a> {
    prefix: String,
    inner: &'a dyn Store,
}

impl<'a> PrefixStore<'a> {
    /// The part of `inner` whose keys begin with `prefix` and a slash.
    pub fn new(prefix: &str, inner: &'a dyn Store) -> Self {
        Self {
            prefix: prefix.into(),
            inner,
        }
    }

    fn full(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }
}

impl Store for PrefixStore<'_> {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.inner.set(&self.full(key), value)
    }

    fn get(&self, key: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Vec<u8>, Error> {
        self.inner.get(&self.full(key), deadline, cancel)
    }

    fn multi_get(
        &self,
        keys: &[String],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let keys: Vec<String> = keys.iter().map(|key| self.full(key)).collect();
        self.inner.multi_get(&keys, deadline, cancel)
    }

    fn refusals(&self) -> Option<String> {
        self.inner.refusals()
    }

    fn answer_status(&self, report: StatusReport) {
        self.inner.answer_status(report);
    }

    fn is_authenticated(&self) -> bool {
        self.inner.is_authenticated()
    }

    fn has(&self, key: &str) -> Result<bool, Error> {
        self.inner.has(&self.full(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    #[test]
    fn a_value_set_later_ends_the_wait() {
        let store = MemoryStore::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| store.get("a", soon(10_000), &AtomicBool::new(false)));
            store.set("a", b"1").unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), b"1");
        });
    }

    #[test]
    fn a_missing_key_times_out_and_is_named() {
        let store = MemoryStore::new();
        let error = store
            .get("missing", soon(5), &AtomicBool::new(false))
            .unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }));
        assert!(error.to_string().contains("missing"), "{error}");
    }

    #[test]
    fn a_key_is_set_once() {
        let store = MemoryStore::new();
        store.set("a", b"1").unwrap();
        store.set("a", b"1").unwrap();
        let error = store.set("a", b"2").unwrap_err();
        assert!(error.to_string().contains("set already"), "{error}");
        let value = store.get("a", soon(1000), &AtomicBool::new(false));
        assert_eq!(value.unwrap(), b"1");
    }

    #[test]
    fn cancel_ends_the_wait() {
        let store = MemoryStore::new();
        let cancel = AtomicBool::new(true);
        let error = store.get("a", soon(10_000), &cancel).unwrap_err();
        assert!(matches!(error, Error::Aborted { .. }));
    }

    #[test]
    fn a_prefix_keeps_keys_apart() {
        let store = MemoryStore::new();
        let (one, two) = (PrefixStore::new("1", &store), PrefixStore::new("2", &store));
        one.set("key", b"one").unwrap();
        assert!(one.has("key").unwrap());
        assert!(!two.has("key").unwrap());
        let keys = ["key".to_string()];
        let values = one.multi_get(&keys, soon(1000), &AtomicBool::new(false));
        assert_eq!(values.unwrap(), [b"one".to_vec()]);
    }
}
