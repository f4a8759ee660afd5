//! Failed set-up of a group: a failure on one rank ends the set-up on all.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_bootstrap::Meeting;
use weft_channel::{ControlMessage, control_neighbours};

use crate::Error;
use crate::progress::{Engine, GroupName, GroupState};

/// The longest time for all links that are made only to report a failure.
const REPORT_MAX: Duration = Duration::from_millis(500);

/// A group during its set-up.
pub(super) struct GroupSetup<'a> {
    pub(super) engine: &'a Engine,
    pub(super) meeting: &'a Meeting,
    pub(super) id: u64,
    pub(super) name: &'a GroupName,
    pub(super) rank: u32,
}

impl GroupSetup<'_> {
    /// Ends a group that this rank cannot make. Notifies the members with links to this rank, and
    /// the control neighbours, which pass it on. Members that make the group later learn it then.
    pub(super) fn report_failure(&self, error: &Error) {
        // An interrupted call does not wait for new links.
        let dials = !matches!(error, Error::Aborted { .. });
        let error = self.engine.with(|state, finished| {
            // An error that was reported to members already is passed on unchanged.
            let report = state.groups.get(&self.id).and_then(GroupState::report);
            let error = match report {
                Some((error, _)) => error,
                None => error.reported_by(self.name.rank(self.rank)),
            };
            state.cancel_group(self.id, &error, finished);
            error
        });
        let message = ControlMessage::Broken {
            group: self.id,
            error,
            origin: None,
            limit: 0,
        };
        let (endpoint, never) = (self.engine.endpoint(), AtomicBool::new(false));
        let until = Instant::now() + REPORT_MAX;
        let neighbours = control_neighbours(self.rank, self.meeting.members.len() as u32);
        for (peer, member) in (0..).zip(&self.meeting.members) {
            if peer == self.rank {
                continue;
            }
            let kind = self.meeting.kind(self.rank, peer);
            let link = endpoint.ready_link(member.address.id, kind).or_else(|| {
                let dial = || endpoint.link(&member.address, kind, until, &never).ok();
                (dials && neighbours.contains(&peer)).then(dial).flatten()
            });
            if let Some(link) = link {
                // A broken link is detected when it is read.
                let _ = link.message(&message.encode());
            }
        }
        // Sends the messages even if this engine has nothing else to do.
        self.engine.with(|_, _| ());
    }
}
