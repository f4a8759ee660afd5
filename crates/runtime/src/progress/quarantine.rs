//! Memory of closed groups: back to the pool once no peer can write there any more. See
//! [Note: Quarantine].

use std::sync::Arc;

use weft_call::Finished;
use weft_channel::ControlMessage;
use weft_memory::PoolRange;
use weft_transport::Link;

use super::state::ProgressState;

impl ProgressState {
    /// Takes back what no peer can write any more of a group that is closed here, and forgets the
    /// group with the last of it.
    pub(crate) fn release(&mut self, id: u64) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.closed) else {
            return;
        };
        let mut back = Vec::new();
        for rank in 0..group.size() {
            if !group.connections.may_be_written_by(rank) {
                back.extend(group.connections.take_channel(rank));
            }
        }
        if group.connections.channels.iter().all(Option::is_none) {
            back.extend(self.forget(id));
        }
        // Before it is free: what is free is not in quarantine.
        self.count_quarantined();
        back.into_iter()
            .for_each(|range| self.endpoint.pool().free(range));
        let unproven = std::mem::take(&mut self.unproven);
        let of_use = unproven.into_iter().filter(|link| self.may_write(link));
        self.unproven = of_use.collect();
    }

    /// Says goodbye to closed groups again, over another link than theirs, and asks a peer to do so
    /// that may still write there: what both have said may be lost with a link that broke.
    pub(crate) fn detach_again(&self, link: &Arc<dyn Link>) {
        for (group, rank) in self.memberships(link.peer()) {
            let connections = match self.groups.get(&group) {
                Some(state) if state.closed => &state.connections,
                _ => continue,
            };
            if connections.is_linked(rank) && !connections.is_over(rank, link) {
                let asks = connections.may_be_written_by(rank);
                // A link that fails is noticed when it is read.
                let _ = link.message(&ControlMessage::Detach { group, asks }.encode());
            }
        }
    }

    /// Looks from now on whether the process behind a link that has ended does so too, if that
    /// matters.
    pub(super) fn watch_for_end(&mut self, link: &Arc<dyn Link>) {
        let watched = self.unproven.iter().any(|other| Arc::ptr_eq(other, link));
        if link.capabilities().maps && !watched && self.may_write(link) {
            self.unproven.push(link.clone());
        }
    }

    /// Whether the peer of a link may still write into what it was granted for a group.
    fn may_write(&self, link: &Arc<dyn Link>) -> bool {
        let may_write = |(id, rank): (u64, u32)| {
            let group = self.groups.get(&id);
            group.is_some_and(|group| group.connections.may_be_written_by(rank))
        };
        self.memberships(link.peer()).into_iter().any(may_write)
    }

    /// Looks whether processes have ended of which that was not proven, and takes back what they
    /// could write.
    pub(crate) fn look_for_ends(&mut self, finished: &mut Finished) {
        let (ended, unproven) = std::mem::take(&mut self.unproven)
            .into_iter()
            .partition(|link| link.peer_has_ended());
        self.unproven = unproven;
        for link in ended {
            self.dead(link.peer(), PROVEN_LATE, finished);
        }
    }

    /// What is left of a group's memory.
    fn forget(&mut self, id: u64) -> impl Iterator<Item = PoolRange> + use<> {
        let group = self.groups.remove(&id);
        self.note_closed(id);
        let scratch = group.map(|group| group.connections.into_scratch());
        scratch.into_iter().flatten()
    }

    fn count_quarantined(&self) {
        let closed = self.groups.values().filter(|group| group.closed);
        let bytes = closed.map(|group| group.connections.granted_bytes()).sum();
        self.endpoint.pool().note_quarantined(bytes);
    }
}

/// What is said of a process that ended after its link.
const PROVEN_LATE: &str = "its process ended";
