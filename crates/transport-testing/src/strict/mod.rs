//! A loopback with the rules of RDMA verbs, stricter than the other transports. Code that keeps the
//! contract here keeps it over verbs.
//!
//! Nothing is mapped. Local memory of operations must be registered: with an exposed region, or,
//! for sources of puts, separately. A thread (in the role of an adapter) executes operations at its
//! own pace: it reads a put's source long after the call. The effects occur in the order of the
//! calls; completions follow later, and in any order. Each access is checked against the peer's
//! grants.

mod adapter;
mod link;
mod lock;
mod participant;
mod queue;
mod registrations;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use weft_transport::loopback::{Listeners, MessageQueue};
use weft_transport::{
    Capabilities, DmaBuf, EndpointId, Iovec, Link, LinkError, LinkEvents, Local,
    MemoryRegistration, RegionKey, Regions, RegistrationKey, Segment, Transport, TransportKind,
};

use link::StrictLink;
use participant::Participant;

static LISTENERS: Listeners<Participant> = Listeners::new();

/// The transports of an endpoint that has only this one, in the form that its options take.
///
/// # Errors
/// None.
pub fn strict(local: &Local) -> Result<Vec<Arc<dyn Transport>>, LinkError> {
    Ok(vec![Arc::new(StrictTransport::new(local.clone()))])
}

/// Joins endpoints of one process by strict links.
pub struct StrictTransport(Participant);

impl StrictTransport {
    /// A transport for this endpoint.
    pub fn new(local: Local) -> StrictTransport {
        let regions = Regions::new(Arc::clone(&local.pool));
        StrictTransport(Participant {
            local,
            regions,
            registrations: Arc::default(),
        })
    }
}

impl Transport for StrictTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Custom
    }

    fn capabilities(&self) -> Capabilities {
        StrictLink::CAPABILITIES
    }

    fn address(&self) -> Vec<u8> {
        self.0.local.token.to_vec()
    }

    fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError> {
        Ok(self.0.regions.expose(segment))
    }

    fn withdraw(&self, region: RegionKey) {
        self.0.regions.withdraw(region);
    }

    fn registration(self: Arc<Self>) -> Option<Arc<dyn MemoryRegistration>> {
        Some(self)
    }

    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError> {
        LISTENERS.listen(&self.0, events);
        Ok(())
    }

    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        _: Instant,
        _: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        LISTENERS.connect(&self.0, peer, address, |here, there| {
            let [to_here, to_there] = [(); 2].map(|()| Arc::new(MessageQueue::default()));
            let [ours, theirs] = StrictLink::pair((here, to_here), (there, to_there));
            Ok([Arc::new(ours), Arc::new(theirs)])
        })
    }

    fn close(&self) {
        LISTENERS.close(self.0.local.id);
    }
}

impl MemoryRegistration for StrictTransport {
    fn register(&self, memory: Iovec) -> Result<RegistrationKey, LinkError> {
        Ok(self.0.registrations.register(memory))
    }

    fn register_device(
        &self,
        memory: Iovec,
        file: DmaBuf<'_>,
    ) -> Result<RegistrationKey, LinkError> {
        self.0.registrations.register_device(memory, file)
    }

    fn deregister(&self, key: RegistrationKey) {
        self.0.registrations.deregister(key);
    }
}

impl Drop for StrictTransport {
    fn drop(&mut self) {
        self.close();
    }
}
