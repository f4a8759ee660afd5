//! Last step of a group's creation: links to the control neighbours, and the wait until they have
//! made the group as well.
//!
//! Each rank reports to its neighbours that it has made the group. Its own call ends when all of
//! them have reported. So a rank may then leave without failing any other rank's creation: its
//! neighbours have received its report, and other ranks do not wait for it. Memory is granted when
//! operations need it: see [Note: Parts] in `channel/parts.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weft_call::Completion;
use weft_channel::{PartSet, control_neighbours};

use super::interruption::Interruption;
use super::{Group, closed};
use crate::Error;
use crate::progress::{GroupState, Waited};

impl Group {
    /// Opens channels to the control neighbours.
    pub(crate) fn link_neighbours(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        for peer in control_neighbours(self.rank, self.size()) {
            match self.connect(peer, PartSet::NONE, deadline, cancel) {
                Err(Error::PeerLost { .. }) if self.has_joined(peer) => {}
                result => result?,
            }
        }
        Ok(())
    }

    pub(super) fn with_state<T>(&self, ask: impl FnOnce(&mut GroupState) -> T) -> Result<T, Error> {
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id);
            group.map(ask).ok_or_else(closed)
        })
    }

    /// Whether a peer that has ended had made the group before.
    fn has_joined(&self, peer: u32) -> bool {
        self.receive_messages();
        let joined = self.with_state(|group| group.connections.remote(peer).is_some());
        joined.unwrap_or(false)
    }

    /// Waits until the control neighbours have made the group as well.
    pub(crate) fn wait_for_neighbours(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let joined = Completion::new();
        self.with_state(|group| group.joined = joined.clone())?;
        let (mut interruption, mut asked) = (Interruption::of_this_call(), Ok(()));
        let mut stops = || {
            asked = interruption.check();
            asked.is_err() || cancel.load(Ordering::SeqCst)
        };
        match self.engine.wait(&joined, Some(deadline), &mut stops) {
            Waited::Done => joined.result().unwrap_or(Ok(())),
            Waited::Interrupted => asked.and(Err(Error::cancelled())),
            Waited::NotYet => Err(Error::Timeout {
                operation: format!(
                    "creation of {}",
                    self.with_state(|group| group.name.clone())?
                ),
                waiting_for: self.with_state(|group| group.late_ranks())?,
                after: started.elapsed(),
            }),
        }
    }
}
