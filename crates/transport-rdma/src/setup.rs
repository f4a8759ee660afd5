//! Setup of a link: its ends connect their queue pairs, over the authenticated control connection.
//!
//! Both ends offer their rails; the called end connects to the caller's before it sends its own
//! offer, so that no data of the caller can be too early; the caller then reports that it is ready
//! to receive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_transport::{Inbox, Link, LinkError, Local, Regions, random};
use weft_transport_tcp::{poll, poll_entry};

use crate::closing::Goodbyes;
use crate::control::{LinkControl, RailOffer};
use crate::link::RdmaLink;
use crate::rail::Rail;
use crate::registered::Registered;
use crate::verbs::{Port, ServiceLevel};

/// The interval at which a wait checks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// The common parts of all links of an endpoint.
pub(crate) struct LinkSetup {
    pub(crate) local: Local,
    pub(crate) regions: Arc<Regions>,
    /// One for each rail that a link may have.
    pub(crate) ports: Vec<(Port, Arc<Registered>)>,
    pub(crate) service: ServiceLevel,
    pub(crate) goodbyes: Arc<Goodbyes>,
}

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetupRole {
    Caller,
    Called,
}

impl LinkSetup {
    /// Makes a link over a connection. On failure, the peer is sent the reason.
    pub(crate) fn set_up(
        &self,
        control: Arc<dyn Link>,
        role: SetupRole,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<RdmaLink>, LinkError> {
        let mut exchange = ControlExchange {
            control: &*control,
            received: VecDeque::new(),
            deadline,
            cancel,
        };
        match self.connect(&mut exchange, role) {
            Ok(rails) => {
                let received = exchange.received;
                let link =
                    RdmaLink::new(&self.local, &self.regions, control, rails, &self.goodbyes)?;
                received.iter().for_each(|bytes| link.apply(bytes));
                Ok(link)
            }
            Err(error) => {
                let _ = exchange.send(&LinkControl::Refused(error.to_string()));
                control.close();
                Err(error)
            }
        }
    }

    fn connect(
        &self,
        exchange: &mut ControlExchange<'_>,
        role: SetupRole,
    ) -> Result<Vec<Rail>, LinkError> {
        let made: Result<Vec<_>, LinkError> = self.ports.iter().enumerate().map(rail).collect();
        let (mut rails, own): (Vec<Rail>, Vec<RailOffer>) = made?.into_iter().unzip();
        if role == SetupRole::Caller {
            exchange.send(&LinkControl::Offer(own.clone()))?;
        }
        let peer = match exchange.next()? {
            LinkControl::Offer(peer) if !peer.is_empty() => peer,
            LinkControl::Refused(why) => return Err(LinkError::Refused(why)),
            _ => {
                return Err(LinkError::Protocol(
                    "a control message that is not an offer".into(),
                ));
            }
        };
        rails.truncate(peer.len());
        for (number, rail) in rails.iter().enumerate() {
            let (port, _) = &self.ports[number];
            let mut state = crate::lock::lock(&rail.state);
            let connected = state.connect(port, &own[number], &peer[number], self.service);
            connected.map_err(|error| {
                LinkError::Refused(format!(
                    "{} cannot reach the peer's RDMA port: {error}",
                    port.name()
                ))
            })?;
        }
        match role {
            SetupRole::Caller => exchange.send(&LinkControl::Ready)?,
            SetupRole::Called => {
                exchange.send(&LinkControl::Offer(own))?;
                match exchange.next()? {
                    LinkControl::Ready => {}
                    LinkControl::Refused(why) => return Err(LinkError::Refused(why)),
                    _ => return Err(LinkError::Protocol("the caller is not ready".into())),
                }
            }
        }
        Ok(rails)
    }
}

fn rail(
    (number, (port, registered)): (usize, &(Port, Arc<Registered>)),
) -> Result<(Rail, RailOffer), LinkError> {
    let psn = u32::from_le_bytes(random()?) & 0x00ff_ffff;
    Rail::new(number, port, registered, psn).map_err(LinkError::from)
}

/// The exchange of control messages over the connection.
struct ControlExchange<'a> {
    control: &'a dyn Link,
    received: VecDeque<Vec<u8>>,
    deadline: Instant,
    cancel: &'a AtomicBool,
}

impl Inbox for VecInbox<'_> {
    fn message(&mut self, bytes: &[u8]) {
        self.0.push_back(bytes.to_vec());
    }
}

struct VecInbox<'a>(&'a mut VecDeque<Vec<u8>>);

impl ControlExchange<'_> {
    fn send(&self, message: &LinkControl) -> Result<(), LinkError> {
        self.control.message(&message.encode())?;
        self.control.flush().map(drop)
    }

    /// Waits for the peer's next control message.
    fn next(&mut self) -> Result<LinkControl, LinkError> {
        loop {
            if let Some(bytes) = self.received.pop_front() {
                let malformed = || LinkError::Protocol("a malformed control message".into());
                return LinkControl::decode(&bytes).ok_or_else(malformed);
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(LinkError::Cancelled);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LinkError::TimedOut("connecting queue pairs".into()));
            }
            self.control.flush()?;
            let received = self.control.receive(&mut VecInbox(&mut self.received));
            if self.received.is_empty() {
                received?;
                let descriptor = self.control.descriptor().unwrap_or(-1);
                let mut entries = [poll_entry(descriptor, libc::POLLIN)];
                poll(&mut entries, left.min(CANCEL_POLL))?;
            }
        }
    }
}
