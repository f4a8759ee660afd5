//! Registration of the caller's memory, with a handle.

use std::sync::{Arc, Mutex, PoisonError};

use weft_memory::{RegisteredMemory, Registrations, access};
use weft_transport::{DmaBuf, TransportKind, fork};

use super::Group;
use crate::Error;

/// Memory of the caller that links read in place until it is deregistered or this is dropped. See
/// [`Group::register`].
pub struct Registration {
    registrations: Arc<Registrations>,
    memory: Mutex<Option<Arc<RegisteredMemory>>>,
    /// The process (counted in forks) that has registered it.
    generation: u64,
}

impl Registration {
    /// Ends the registration. Later operations copy the memory before they send it; unfinished ones
    /// are not affected. Idempotent. Does nothing in a forked child.
    pub fn deregister(&self) {
        if self.generation != fork::generation() {
            return;
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = memory.take() {
            self.registrations.end(&memory);
        }
    }

    /// The kinds of links that read the memory in place only because it is registered: none if all
    /// links read any memory, and none after it is deregistered.
    pub fn kinds(&self) -> Vec<TransportKind> {
        if self.generation != fork::generation() {
            return Vec::new();
        }
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = memory.iter().flat_map(|memory| memory.kinds());
        kinds.collect()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.deregister();
    }
}

impl Group {
    /// Registers memory with the adapters of this process, if it uses any. Collectives, messages
    /// and one-sided puts of all groups of the process then send from it without a copy in the
    /// pool. It has no cost and no effect if there are no adapters. No other rank needs to call it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the memory cannot be registered, such as at a limit of locked memory.
    ///
    /// # Safety
    ///
    /// Until the handle is deregistered or dropped, `bytes` bytes from `memory` on stay mapped at
    /// this address.
    pub unsafe fn register(&self, memory: *const u8, bytes: u64) -> Result<Registration, Error> {
        // SAFETY: as this function requires.
        unsafe { self.register_by(memory, bytes, None) }
    }

    /// As [`Group::register`], for memory of a device, which adapters access by a file. Only
    /// [`Group::send_from_device`] and [`super::Symmetric::put_from_device`] may send from it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if an adapter of this process refuses it.
    ///
    /// # Safety
    ///
    /// Until the handle is deregistered or dropped, the device's memory is not moved, and no other
    /// memory of this process has its addresses.
    pub unsafe fn register_device(
        &self,
        memory: *const u8,
        bytes: u64,
        file: DmaBuf<'_>,
    ) -> Result<Registration, Error> {
        // SAFETY: as this function requires.
        unsafe { self.register_by(memory, bytes, Some(file)) }
    }

    /// # Safety
    /// As for [`Group::register`], or for [`Group::register_device`] with a file.
    unsafe fn register_by(
        &self,
        memory: *const u8,
        bytes: u64,
        file: Option<DmaBuf<'_>>,
    ) -> Result<Registration, Error> {
        let registrations = Arc::clone(self.engine.endpoint().registrations());
        // SAFETY: as this function requires.
        let named = unsafe { access::registered(memory, bytes) };
        let registered = registrations.register(named, file);
        let registered = registered.map_err(|error| {
            Error::Config(format!(
                "{bytes} bytes of memory cannot be registered: {error}"
            ))
        })?;
        Ok(Registration {
            registrations,
            memory: Mutex::new(Some(registered)),
            generation: fork::generation(),
        })
    }

    /// The reason if memory was copied instead of registered while it was sent.
    pub fn registration_refusal(&self) -> Option<String> {
        let registrations = self.engine.endpoint().registrations();
        registrations.refusal().map(str::to_owned)
    }

    /// The number of bytes of the caller's memory that were copied into the pool, as links could
    /// not read them in place.
    pub fn staged_bytes(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| group.connections.staged_bytes())
        })
    }
}
