//! Registration of the caller's memory by explicit handle.

use std::sync::{Arc, Mutex, PoisonError};

use weft_memory::{RegisteredMemory, Registrations, access};
use weft_transport::{DmaBuf, TransportKind, fork};

use super::Group;
use crate::Error;

/// Memory of the caller's that links read where it lies, until it is deregistered or this is
/// dropped. See [`Group::register`].
pub struct Registration {
    registrations: Arc<Registrations>,
    memory: Mutex<Option<Arc<RegisteredMemory>>>,
    /// The process (counted in forks) that has registered it.
    generation: u64,
}

impl Registration {
    /// Ends it. What is sent from the memory afterwards is copied first; what is under way is not
    /// disturbed. Idempotent. In a forked child it does nothing.
    pub fn deregister(&self) {
        if self.generation != fork::generation() {
            return;
        }
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = memory.take() {
            self.registrations.end(&memory);
        }
    }

    /// The kinds of links that read the memory where it lies, and would not without: none where
    /// all links read any memory, and none once it is deregistered.
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
    /// Registers memory with the adapters of this process, if it uses some: what collectives,
    /// messages and one-sided puts, of this and of all groups of the process, send from it is then
    /// read where it lies, without a copy in the pool. Elsewhere it costs nothing, and changes
    /// nothing. No other rank needs to call it.
    ///
    /// Fails where the memory cannot be kept in place, such as for a limit of locked memory.
    ///
    /// # Safety
    /// Until the handle is deregistered or dropped, `bytes` bytes from `memory` on stay mapped
    /// where they are.
    pub unsafe fn register(&self, memory: *const u8, bytes: u64) -> Result<Registration, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.register_by(memory, bytes, None) }
    }

    /// As [`Group::register`], for memory of a device, which adapters reach by a file:
    /// [`Group::send_from_device`] and [`super::Symmetric::put_from_device`] send from it. Nothing
    /// else may.
    ///
    /// Fails where an adapter of this process does not take it.
    ///
    /// # Safety
    /// Until the handle is deregistered or dropped, the device's memory stays where it is, and no
    /// other memory of this process has its addresses.
    pub unsafe fn register_device(
        &self,
        memory: *const u8,
        bytes: u64,
        file: DmaBuf<'_>,
    ) -> Result<Registration, Error> {
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
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

    /// Why memory that was to be registered while it is sent was copied all the same, if some was.
    pub fn registration_refusal(&self) -> Option<String> {
        let registrations = self.engine.endpoint().registrations();
        registrations.refusal().map(str::to_owned)
    }

    /// How many bytes of the caller's memory were copied into the pool before they were sent, as
    /// links could not read them where they lay.
    pub fn staged_bytes(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| group.connections.staged_bytes())
        })
    }
}
