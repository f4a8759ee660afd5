//! Links between endpoints of one process: for tests, and for ranks that are threads.

mod link;
pub(crate) mod messages;
pub(crate) mod participant;
pub(crate) mod registrations;
mod strict;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::{
    Capabilities, DmaBuf, EndpointId, Iovec, Link, LinkError, LinkEvents, Local, MappedPeer,
    PerProcess, RegionKey, Regions, RegistrationKey, Segment, Transport, TransportKind,
};
use link::LoopbackLink;
use messages::{MessageQueue, locked};
use participant::Participant;
use strict::StrictLink;

type Listeners = HashMap<(EndpointId, TransportKind), LoopbackListener>;

static LISTENERS: PerProcess<Mutex<Listeners>> = PerProcess::new(Mutex::default);

/// Joins endpoints of one process.
pub struct LoopbackTransport {
    participant: Participant,
    kind: TransportKind,
}

impl LoopbackTransport {
    /// A transport for this endpoint.
    pub fn new(local: Local) -> LoopbackTransport {
        LoopbackTransport::of_kind(local, TransportKind::Loopback)
    }

    /// A transport for this endpoint by the rules of RDMA verbs. See `strict/mod.rs`.
    pub fn strict(local: Local) -> LoopbackTransport {
        LoopbackTransport::of_kind(local, TransportKind::Strict)
    }

    fn of_kind(local: Local, kind: TransportKind) -> LoopbackTransport {
        let regions = Regions::new(Arc::clone(&local.pool));
        LoopbackTransport {
            participant: Participant {
                local,
                regions,
                registrations: Arc::default(),
            },
            kind,
        }
    }
}

impl Transport for LoopbackTransport {
    fn kind(&self) -> TransportKind {
        self.kind
    }

    fn capabilities(&self) -> Capabilities {
        match self.kind {
            TransportKind::Strict => StrictLink::CAPABILITIES,
            _ => MappedPeer::CAPABILITIES,
        }
    }

    fn address(&self) -> Vec<u8> {
        self.participant.local.token.to_vec()
    }

    fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError> {
        Ok(self.participant.regions.expose(segment))
    }

    fn withdraw(&self, region: RegionKey) {
        self.participant.regions.withdraw(region);
    }

    fn register(&self, memory: Iovec) -> Result<Option<RegistrationKey>, LinkError> {
        let needed = self.capabilities().needs_registration;
        Ok(needed.then(|| self.participant.registrations.register(memory)))
    }

    fn register_device(
        &self,
        memory: Iovec,
        file: DmaBuf<'_>,
    ) -> Result<RegistrationKey, LinkError> {
        match self.capabilities().needs_registration {
            true => self.participant.registrations.register_device(memory, file),
            false => Err(LinkError::Unsupported("registration of devices' memory")),
        }
    }

    fn deregister(&self, key: RegistrationKey) {
        self.participant.registrations.deregister(key);
    }

    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError> {
        let listener = LoopbackListener {
            participant: self.participant.clone(),
            events,
        };
        locked(LISTENERS.get()).insert((self.participant.local.id, self.kind), listener);
        Ok(())
    }

    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        _: Instant,
        _: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let listener = locked(LISTENERS.get()).get(&(peer, self.kind)).cloned();
        let LoopbackListener {
            participant: there,
            events,
        } = listener.ok_or_else(|| {
            LinkError::Absent(format!("{peer:?} does not listen in this process"))
        })?;
        let here = &self.participant;
        if address != there.local.token {
            return Err(LinkError::Refused(
                "the address carries another token".into(),
            ));
        }
        if !events.accept(here.local.id) {
            return Ok(None);
        }
        let [ours, theirs] = pair(self.kind, here, &there)?;
        events.connected(theirs);
        there.local.doorbell.notify();
        Ok(Some(ours))
    }

    fn close(&self) {
        locked(LISTENERS.get()).remove(&(self.participant.local.id, self.kind));
    }
}

impl Drop for LoopbackTransport {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Clone)]
struct LoopbackListener {
    participant: Participant,
    events: Arc<dyn LinkEvents>,
}

/// Both ends of a new link.
fn pair(
    kind: TransportKind,
    here: &Participant,
    there: &Participant,
) -> Result<[Arc<dyn Link>; 2], LinkError> {
    let [to_here, to_there] = [(); 2].map(|()| Arc::new(MessageQueue::default()));
    if kind == TransportKind::Strict {
        let [ours, theirs] = StrictLink::pair((here, to_here), (there, to_there));
        return Ok([Arc::new(ours), Arc::new(theirs)]);
    }
    let ours = LoopbackLink::new(there, Arc::clone(&to_here), Arc::clone(&to_there))?;
    let theirs = LoopbackLink::new(here, to_there, to_here)?;
    Ok([Arc::new(ours), Arc::new(theirs)])
}
