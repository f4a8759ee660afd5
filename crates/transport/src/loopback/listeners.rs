//! The endpoints of this process that accept connections from within it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::messages::locked;
use crate::{EndpointId, Link, LinkError, LinkEvents, Local, PerProcess};

/// Endpoints that accept connections over one transport, each with what its links are made of.
pub struct Listeners<P: 'static>(PerProcess<Mutex<HashMap<EndpointId, Listener<P>>>>);

#[derive(Clone)]
struct Listener<P> {
    participant: P,
    events: Arc<dyn LinkEvents>,
}

impl<P: AsRef<Local> + Clone + Send + 'static> Listeners<P> {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Self {
        Listeners(PerProcess::new(Mutex::default))
    }

    /// Accepts connections to this endpoint, until they are [closed](Self::close).
    pub fn listen(&'static self, participant: &P, events: Arc<dyn LinkEvents>) {
        let listener = Listener {
            participant: participant.clone(),
            events,
        };
        locked(self.0.get()).insert(participant.as_ref().id, listener);
    }

    /// Connects an endpoint to a peer, by both ends of a link that `pair` makes of the two. See
    /// [`Transport::connect`](crate::Transport::connect).
    ///
    /// # Errors
    /// The peer does not listen in this process, its address has another token, or `pair` fails.
    pub fn connect(
        &'static self,
        here: &P,
        peer: EndpointId,
        address: &[u8],
        pair: impl FnOnce(&P, &P) -> Result<[Arc<dyn Link>; 2], LinkError>,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let listener = locked(self.0.get()).get(&peer).cloned();
        let Listener {
            participant: there,
            events,
        } = listener.ok_or_else(|| {
            LinkError::Absent(format!("{peer:?} does not listen in this process"))
        })?;
        if address != there.as_ref().token {
            return Err(LinkError::Refused(
                "the address carries another token".into(),
            ));
        }
        if !events.accept(here.as_ref().id) {
            return Ok(None);
        }
        let [ours, theirs] = pair(here, &there)?;
        events.connected(theirs);
        there.as_ref().doorbell.notify();
        Ok(Some(ours))
    }

    /// Accepts no more connections to an endpoint.
    pub fn close(&'static self, endpoint: EndpointId) {
        locked(self.0.get()).remove(&endpoint);
    }
}
