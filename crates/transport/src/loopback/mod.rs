//! Links between endpoints of one process: for tests, and for ranks that are threads.
//!
//! [`Listeners`] and [`MessageQueue`] serve other transports within one process, too.

mod link;
mod listeners;
mod messages;
mod participant;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::{
    Capabilities, EndpointId, Link, LinkError, LinkEvents, Local, MappedPeer, RegionKey, Regions,
    Segment, Transport, TransportKind,
};
use link::LoopbackLink;
pub use listeners::Listeners;
pub use messages::{MessageQueue, QueueEnd};
use participant::Participant;

static LISTENERS: Listeners<Participant> = Listeners::new();

/// Joins endpoints of one process.
pub struct LoopbackTransport(Participant);

impl LoopbackTransport {
    /// A transport for this endpoint.
    pub fn new(local: Local) -> LoopbackTransport {
        let regions = Regions::new(Arc::clone(&local.pool));
        LoopbackTransport(Participant { local, regions })
    }
}

impl Transport for LoopbackTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Loopback
    }

    fn capabilities(&self) -> Capabilities {
        MappedPeer::CAPABILITIES
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
        LISTENERS.connect(&self.0, peer, address, pair)
    }

    fn close(&self) {
        LISTENERS.close(self.0.local.id);
    }
}

impl Drop for LoopbackTransport {
    fn drop(&mut self) {
        self.close();
    }
}

/// Both ends of a new link.
fn pair(here: &Participant, there: &Participant) -> Result<[Arc<dyn Link>; 2], LinkError> {
    let [to_here, to_there] = [(); 2].map(|()| Arc::new(MessageQueue::default()));
    let ours = LoopbackLink::new(there, Arc::clone(&to_here), Arc::clone(&to_there))?;
    let theirs = LoopbackLink::new(here, to_there, to_here)?;
    Ok([Arc::new(ours), Arc::new(theirs)])
}
