//! Set-up that fails on one rank, and ends on all.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_bootstrap::Meeting;
use weft_channel::{ControlMessage, control_neighbours};

use crate::Error;
use crate::progress::{Engine, GroupName, GroupState};

/// How long links may take that are made only to tell of a failure, all together.
const TELLING: Duration = Duration::from_millis(500);

/// A group that is being made.
pub(super) struct Making<'a> {
    pub(super) engine: &'a Engine,
    pub(super) meeting: &'a Meeting,
    pub(super) id: u64,
    pub(super) name: &'a GroupName,
    pub(super) rank: u32,
}

impl Making<'_> {
    /// Ends a group that this rank cannot make: tells the members that there are links to, and the
    /// control neighbours, who tell theirs. Those that make it later are told then.
    pub(super) fn call_off(&self, error: &Error) {
        // Whoever interrupts does not wait for links.
        let dials = !matches!(error, Error::Aborted { .. });
        let error = self.engine.with(|state, finished| {
            // What members have been told already is passed on as it is.
            let told = state.groups.get(&self.id).and_then(GroupState::reported);
            let error = told.unwrap_or_else(|| error.told_by(self.name.rank(self.rank)));
            state.call_off(self.id, &error, finished);
            error
        });
        let message = ControlMessage::Broken {
            group: self.id,
            error,
            origin: None,
            limit: 0,
        };
        let (endpoint, never) = (self.engine.endpoint(), AtomicBool::new(false));
        let until = Instant::now() + TELLING;
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
                // A link that fails is noticed when it is read.
                let _ = link.message(&message.encode());
            }
        }
        // Sends it also where nothing else is done with this engine.
        self.engine.with(|_, _| ());
    }
}
