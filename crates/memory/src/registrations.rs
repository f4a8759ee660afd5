//! Registrations: memory of the caller that is registered with adapters, so that links read it in
//! place.
//!
//! [Note: Registered memory] A link that needs registration sends ordinary memory from a copy in
//! the pool, unless it is registered. A put names its source by the key of the registration, not by
//! the address: memory that was freed and allocated again may have the same address, and an adapter
//! would send the former pages. A registration lasts as long as any put that uses it, even if it is
//! ended meanwhile.
//!
//! [Note: Memory of devices] The processor cannot read it, so it is never copied into the pool. An
//! operation that sends from it holds its registration from the call on. If a link cannot read it,
//! the call fails before anything has begun.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use weft_flight::StageTrace;
use weft_transport::{
    DmaBuf, Doorbell, Iovec, LinkError, MemoryRegistration, Transport, TransportKind,
};

use super::registered::{RegisteredMemory, RegisteredPiece};
use super::registrar::Registrar;

/// The treatment of memory that is not registered, where links need registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unregistered {
    /// It is copied into the pool.
    #[default]
    Copied,
    /// Large memory is registered part by part while it is sent; the rest is copied.
    Pipelined,
}

/// The memory that users of an endpoint have registered.
pub struct Registrations {
    /// The transports whose links need registration.
    transports: Vec<Arc<dyn MemoryRegistration>>,
    known: RwLock<Vec<Arc<RegisteredMemory>>>,
    unregistered: Unregistered,
    stages: Arc<StageTrace>,
    doorbell: Arc<Doorbell>,
    /// Started when it is first needed; the reason if it cannot be started.
    registrar: OnceLock<Result<Arc<Registrar>, String>>,
}

impl Registrations {
    /// An empty set for these transports.
    pub fn new(
        transports: &[Arc<dyn Transport>],
        unregistered: Unregistered,
        (stages, doorbell): (&Arc<StageTrace>, &Arc<Doorbell>),
    ) -> Arc<Registrations> {
        let transports = transports.iter().cloned();
        Arc::new(Registrations {
            transports: transports
                .filter_map(<dyn Transport>::registration)
                .collect(),
            known: RwLock::default(),
            unregistered,
            stages: Arc::clone(stages),
            doorbell: Arc::clone(doorbell),
            registrar: OnceLock::new(),
        })
    }

    /// The registrar for memory that is registered while it is sent, if that is enabled.
    pub fn registrar(&self) -> Option<&Arc<Registrar>> {
        if self.unregistered == Unregistered::Copied || self.transports.is_empty() {
            return None;
        }
        let start = || {
            let known = (Arc::clone(&self.stages), Arc::clone(&self.doorbell));
            let started = Registrar::start(self.transports.clone(), known);
            started.map_err(|error| format!("there is no thread for it: {error}"))
        };
        self.registrar.get_or_init(start).as_ref().ok()
    }

    /// The reason if memory was copied instead of registered while it is sent.
    pub fn refusal(&self) -> Option<&str> {
        match self.registrar.get()? {
            Ok(registrar) => registrar.refusal(),
            Err(why) => Some(why),
        }
    }

    /// Registers memory until [`Registrations::end`], so that links read it in place; that of a
    /// device by its file.
    ///
    /// # Errors
    ///
    /// The error of the first transport that refuses it.
    pub fn register(
        &self,
        memory: Iovec,
        file: Option<DmaBuf<'_>>,
    ) -> Result<Arc<RegisteredMemory>, LinkError> {
        let registered = Arc::new(RegisteredMemory::new(&self.transports, memory, file)?);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.push(Arc::clone(&registered));
        Ok(registered)
    }

    /// Ends a registration, once no put uses it any more.
    pub fn end(&self, registered: &Arc<RegisteredMemory>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| !Arc::ptr_eq(other, registered));
    }

    /// A piece of memory with its key for puts over links of this kind, if it is registered.
    pub fn find(&self, kind: TransportKind, piece: Iovec) -> Option<RegisteredPiece> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find_map(|registered| {
            let named = registered.named(kind, piece)?;
            Some((named, Arc::clone(registered)))
        })
    }

    /// A piece of a device's memory, if puts over links of this kind read it in place.
    pub fn find_device(&self, kind: TransportKind, piece: Iovec) -> Option<RegisteredPiece> {
        let found = self.find(kind, piece);
        found.filter(|(_, registered)| registered.is_device())
    }

    /// As [`Registrations::find`], for all of these pieces.
    pub fn find_all(&self, kind: TransportKind, pieces: &[Iovec]) -> Option<Vec<RegisteredPiece>> {
        pieces.iter().map(|piece| self.find(kind, *piece)).collect()
    }
}
