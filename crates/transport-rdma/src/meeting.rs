//! How the two ends of a new link connect their queue pairs, over the connection that has proven
//! who they are.
//!
//! Both offer their rails; the end that was called connects to the other's before it makes its own
//! offer, so that nothing the caller sends can come too early; the caller then says that it takes
//! in what comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_transport::{Inbox, Link, LinkError, Local, Regions, random};
use weft_transport_tcp::{poll, poll_entry};

use crate::closing::Goodbyes;
use crate::link::RdmaLink;
use crate::news::{News, RailOffer};
use crate::rail::Rail;
use crate::registered::Registered;
use crate::verbs::{Port, ServiceLevel};

/// How often a wait looks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// What all links of an endpoint are made of.
pub(crate) struct Makings {
    pub(crate) local: Local,
    pub(crate) regions: Arc<Regions>,
    /// One for each rail that a link may have.
    pub(crate) ports: Vec<(Port, Arc<Registered>)>,
    pub(crate) service: ServiceLevel,
    pub(crate) goodbyes: Arc<Goodbyes>,
}

/// Which end of a connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Caller,
    Called,
}

impl Makings {
    /// Makes a link over a connection. Where that fails, the peer is told why.
    pub(crate) fn meet(
        &self,
        control: Arc<dyn Link>,
        role: Role,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<RdmaLink>, LinkError> {
        let mut talk = Talk {
            control: &*control,
            heard: VecDeque::new(),
            deadline,
            cancel,
        };
        match self.connect(&mut talk, role) {
            Ok(rails) => {
                let heard = talk.heard;
                let link =
                    RdmaLink::new(&self.local, &self.regions, control, rails, &self.goodbyes)?;
                heard.iter().for_each(|bytes| link.apply(bytes));
                Ok(link)
            }
            Err(error) => {
                let _ = talk.say(&News::Refused(error.to_string()));
                control.close();
                Err(error)
            }
        }
    }

    fn connect(&self, talk: &mut Talk<'_>, role: Role) -> Result<Vec<Rail>, LinkError> {
        let made: Result<Vec<_>, LinkError> = self.ports.iter().enumerate().map(rail).collect();
        let (mut rails, own): (Vec<Rail>, Vec<RailOffer>) = made?.into_iter().unzip();
        if role == Role::Caller {
            talk.say(&News::Offer(own.clone()))?;
        }
        let peer = match talk.next()? {
            News::Offer(peer) if !peer.is_empty() => peer,
            News::Refused(why) => return Err(LinkError::Refused(why)),
            _ => return Err(LinkError::Protocol("something else than an offer".into())),
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
            Role::Caller => talk.say(&News::Ready)?,
            Role::Called => {
                talk.say(&News::Offer(own))?;
                match talk.next()? {
                    News::Ready => {}
                    News::Refused(why) => return Err(LinkError::Refused(why)),
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

/// The conversation over the connection.
struct Talk<'a> {
    control: &'a dyn Link,
    heard: VecDeque<Vec<u8>>,
    deadline: Instant,
    cancel: &'a AtomicBool,
}

impl Inbox for VecInbox<'_> {
    fn message(&mut self, bytes: &[u8]) {
        self.0.push_back(bytes.to_vec());
    }
}

struct VecInbox<'a>(&'a mut VecDeque<Vec<u8>>);

impl Talk<'_> {
    fn say(&self, news: &News) -> Result<(), LinkError> {
        self.control.message(&news.encode())?;
        self.control.flush().map(drop)
    }

    /// Waits for what the peer says next.
    fn next(&mut self) -> Result<News, LinkError> {
        loop {
            if let Some(bytes) = self.heard.pop_front() {
                let senseless = || LinkError::Protocol("news that make no sense".into());
                return News::decode(&bytes).ok_or_else(senseless);
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(LinkError::Cancelled);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LinkError::TimedOut("connecting queue pairs".into()));
            }
            self.control.flush()?;
            let received = self.control.receive(&mut VecInbox(&mut self.heard));
            if self.heard.is_empty() {
                received?;
                let descriptor = self.control.descriptor().unwrap_or(-1);
                let mut entries = [poll_entry(descriptor, libc::POLLIN)];
                poll(&mut entries, left.min(CANCEL_POLL))?;
            }
        }
    }
}
