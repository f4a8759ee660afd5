//! Quarantine of closed groups' memory, which returns to the pool once no peer can write it any
//! more. See [Note: Quarantine].

use std::sync::Arc;

use weft_call::Finished;
use weft_channel::ControlMessage;
use weft_memory::PoolRange;
use weft_transport::Link;

use super::state::ProgressState;

impl ProgressState {
    /// Frees the memory of a closed group that no peer can write any more, and removes the group
    /// once all of it is free.
    pub(crate) fn free_quarantined(&mut self, id: u64) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.closed) else {
            return;
        };
        let mut freed = Vec::new();
        for rank in 0..group.size() {
            if !group.connections.may_be_written_by(rank) {
                freed.extend(group.connections.take_channel(rank));
            }
        }
        if group.connections.channels.iter().all(Option::is_none) {
            freed.extend(self.remove_group(id));
        }
        // Counted before it is free: free memory is not in quarantine.
        self.count_quarantined();
        freed
            .into_iter()
            .for_each(|range| self.endpoint.pool().free(range));
        let unproven = std::mem::take(&mut self.unproven_ends);
        let relevant = unproven.into_iter().filter(|link| self.may_write(link));
        self.unproven_ends = relevant.collect();
    }

    /// Repeats the detaching from closed groups over a new link, and asks the peer to do so if it
    /// may still write there: earlier messages of both may be lost with a broken link.
    pub(crate) fn detach_again(&self, link: &Arc<dyn Link>) {
        for (group, rank) in self.memberships(link.peer()) {
            let connections = match self.groups.get(&group) {
                Some(state) if state.closed => &state.connections,
                _ => continue,
            };
            if connections.is_linked(rank) && !connections.uses_link(rank, link) {
                let asks = connections.may_be_written_by(rank);
                // A broken link is detected when it is read.
                let _ = link.message(&ControlMessage::Detach { group, asks }.encode());
            }
        }
    }

    /// Starts checking whether the process behind an ended link ends too, if it may still write
    /// memory of a group.
    pub(super) fn watch_for_end(&mut self, link: &Arc<dyn Link>) {
        let watched = self
            .unproven_ends
            .iter()
            .any(|other| Arc::ptr_eq(other, link));
        if link.capabilities().maps && !watched && self.may_write(link) {
            self.unproven_ends.push(link.clone());
        }
    }

    /// Whether the peer of a link may still write memory that it was granted for a group.
    fn may_write(&self, link: &Arc<dyn Link>) -> bool {
        let may_write = |(id, rank): (u64, u32)| {
            let group = self.groups.get(&id);
            group.is_some_and(|group| group.connections.may_be_written_by(rank))
        };
        self.memberships(link.peer()).into_iter().any(may_write)
    }

    /// Checks whether processes behind ended links have ended too, and frees the memory that they
    /// could write.
    pub(crate) fn detect_process_ends(&mut self, finished: &mut Finished) {
        let (ended, unproven) = std::mem::take(&mut self.unproven_ends)
            .into_iter()
            .partition(|link| link.peer_has_ended());
        self.unproven_ends = unproven;
        for link in ended {
            self.on_process_end(link.peer(), ENDED_AFTER_LINK, finished);
        }
    }

    /// Removes a group. Returns the rest of its memory.
    fn remove_group(&mut self, id: u64) -> impl Iterator<Item = PoolRange> + use<> {
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

/// The detail of the error for a process that ended after its link.
const ENDED_AFTER_LINK: &str = "its process ended";
