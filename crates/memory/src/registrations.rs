//! Registrations: memory of the caller's that adapters know, which links read where it lies.
//!
//! [Note: Registered memory] A link that needs registration sends ordinary memory from a copy in
//! the pool, unless it is registered. What a put reads is named by the key of its registration, not
//! found by its address: memory that was given back and handed out again has the address of before,
//! and an adapter would send the pages of before. A registration stays as long as a put that names
//! it is under way, whoever ends it meanwhile.
//!
//! [Note: Memory of devices] No processor reaches it, so it is never copied into the pool: what is
//! sent from it holds its registration from the call on, and a link that does not read it is told
//! to the caller before anything has begun.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use weft_flight::StageTrace;
use weft_transport::{
    DmaBuf, Doorbell, Iovec, LinkError, MemoryRegistration, Transport, TransportKind,
};

use super::registered::{RegisteredMemory, RegisteredPiece};
use super::registrar::Registrar;

/// What is done with memory that nobody has registered, where links need it to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unregistered {
    /// It is copied into the pool.
    #[default]
    Copied,
    /// What is large is registered while it is sent, part by part; the rest is copied.
    Pipelined,
}

/// What users of an endpoint have registered.
pub struct Registrations {
    /// Those whose links need it.
    transports: Vec<Arc<dyn MemoryRegistration>>,
    known: RwLock<Vec<Arc<RegisteredMemory>>>,
    unregistered: Unregistered,
    stages: Arc<StageTrace>,
    doorbell: Arc<Doorbell>,
    /// Since it was first needed, or why it cannot be started.
    registrar: OnceLock<Result<Arc<Registrar>, String>>,
}

impl Registrations {
    /// Nothing yet, with these transports.
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

    /// What registers memory while it is sent, if that is to be done.
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

    /// Why memory that is to be registered while it is sent is copied, if some was.
    pub fn refusal(&self) -> Option<&str> {
        match self.registrar.get()? {
            Ok(registrar) => registrar.refusal(),
            Err(why) => Some(why),
        }
    }

    /// Registers memory, for links to read until [`Registrations::end`]; that of a device by its
    /// file.
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

    /// Names it no more.
    pub fn end(&self, registered: &Arc<RegisteredMemory>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| !Arc::ptr_eq(other, registered));
    }

    /// A piece of memory as puts over links of this kind name it, if it is registered.
    pub fn find(&self, kind: TransportKind, piece: Iovec) -> Option<RegisteredPiece> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find_map(|registered| {
            let named = registered.named(kind, piece)?;
            Some((named, Arc::clone(registered)))
        })
    }

    /// A piece of a device's memory, if puts over links of this kind read it where it lies.
    pub fn find_device(&self, kind: TransportKind, piece: Iovec) -> Option<RegisteredPiece> {
        let found = self.find(kind, piece);
        found.filter(|(_, registered)| registered.is_device())
    }

    /// As [`Registrations::find`], for all of these pieces.
    pub fn find_all(&self, kind: TransportKind, pieces: &[Iovec]) -> Option<Vec<RegisteredPiece>> {
        pieces.iter().map(|piece| self.find(kind, *piece)).collect()
    }
}
