//! The last step of a group's creation: linking the control neighbours, and waiting until they have made the group as well.
//!
//! Each rank grants its neighbours memory for the group, and has its group when all of them have done so. Thus a rank that leaves then is
//! missed by nobody's creation: what it granted is there, and those that are not its neighbours do not look for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weft_transport::LinkError;

use crate::Error;
use crate::engine::Finished;
use crate::group::{Group, closed};
use crate::group_state::GroupState;
use crate::state::State;
use crate::work::{Completion, Waited};

impl Group {
    /// Opens channels to the control neighbours.
    pub(crate) fn link_neighbours(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        for peer in control_neighbours(self.rank, self.size()) {
            match self.connect(peer, deadline, cancel) {
                Err(Error::PeerLost { .. }) if self.has_granted(peer) => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn of_state<T>(&self, ask: impl FnOnce(&mut GroupState) -> T) -> Result<T, Error> {
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id);
            group.map(ask).ok_or_else(closed)
        })
    }

    /// Whether a peer that is gone had made the group before.
    fn has_granted(&self, peer: u32) -> bool {
        self.engine.with(|state, finished| {
            // What it sent may still be unread.
            state.knocked = true;
            state.pass(finished);
        });
        let granted = self.of_state(|group| group.has_granted(peer));
        granted.unwrap_or(false)
    }

    /// Waits until the control neighbours have made the group as well.
    pub(crate) fn wait_for_neighbours(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let joined = Completion::new();
        self.of_state(|group| group.joined = joined.clone())?;
        let mut cancelled = || cancel.load(Ordering::SeqCst);
        match self.engine.wait(&joined, Some(deadline), &mut cancelled) {
            Waited::Done => joined.result().unwrap_or(Ok(())),
            Waited::Interrupted => Err(Error::cancelled()),
            Waited::NotYet => Err(Error::Timeout {
                operation: format!("creation of group {}", self.options.name),
                waiting_for: self.of_state(|group| group.latecomers())?,
                after: started.elapsed(),
            }),
        }
    }
}

impl State {
    /// Takes note of groups whose control neighbours are waited for and have made them, or never will.
    pub(crate) fn note_joined(&self, finished: &mut Finished) {
        for group in self.groups.values().filter(|group| !group.joined.is_over()) {
            if let Some(result) = group.neighbours_have_joined() {
                finished.push((group.joined.clone(), result));
            }
        }
    }
}

impl GroupState {
    fn has_granted(&self, peer: u32) -> bool {
        let channel = &self.channels[peer as usize];
        channel
            .as_ref()
            .is_some_and(|channel| channel.remote.is_some())
    }

    /// The neighbours that have not made the group yet.
    fn missing(&self) -> impl Iterator<Item = u32> {
        let neighbours = control_neighbours(self.rank, self.size()).into_iter();
        neighbours.filter(|peer| !self.has_granted(*peer))
    }

    /// "rank 3 on host-b, rank 5 on host-c"
    fn latecomers(&self) -> String {
        let names: Vec<String> = self.missing().map(|rank| self.describe(rank)).collect();
        names.join(", ")
    }

    /// Nothing while there is hope.
    fn neighbours_have_joined(&self) -> Option<Result<(), Error>> {
        let mut missing = self.missing().peekable();
        if missing.peek().is_none() {
            return Some(Ok(()));
        }
        if let Some(error) = &self.broken {
            return Some(Err(error.clone()));
        }
        let left = missing.find(|rank| self.left[*rank as usize])?;
        Some(Err(Error::from_link(
            LinkError::Left,
            Some(left),
            self.host_name(left),
        )))
    }
}

/// The ranks that this one keeps control links to, so that news reach everybody: those 1, 2, 4 ... before and after it.
fn control_neighbours(rank: u32, size: u32) -> Vec<u32> {
    let distances = std::iter::successors(Some(1), |d| Some(d * 2)).take_while(|d| *d < size);
    let mut ranks: Vec<u32> = distances
        .flat_map(|d| [(rank + d) % size, (rank + size - d) % size])
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
