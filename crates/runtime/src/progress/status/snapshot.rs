//! The status of this rank.

use weft_channel::{
    AwaitedPeer, LinkCounts, OngoingOperation, RankStatus, STATUS_GROUPS_MAX, STATUS_LINKS_MAX,
};
use weft_flight::RecordedOperation;
use weft_transport::process_time;

use super::super::group_state::GroupState;
use super::super::state::ProgressState;

impl ProgressState {
    /// Returns the present status of this rank of a group.
    pub(super) fn status(&self, group: &GroupState) -> RankStatus {
        let flight = self.endpoint.flight();
        let activity = flight.activity();
        let (rank, pool) = (group.connections.rank, self.endpoint.pool());
        let bound = pool.segment().len();
        let mut groups = activity.groups;
        groups.truncate(STATUS_GROUPS_MAX);
        RankStatus {
            rank,
            global_rank: group.name.rank(rank),
            host: group.connections.host_name(rank).into(),
            pid: std::process::id(),
            at_us: flight.monotonic_us(),
            processor_us: process_time().as_micros() as u64,
            waited_us: self.wait_time.total().as_micros() as u64,
            steps: flight.steps(),
            operations: activity.operations,
            quiet_us: activity.quiet.as_micros() as u64,
            pool_bytes: [bound - pool.available(), bound],
            groups,
            current: activity.current.map(|current| self.ongoing(current)),
            links: self.link_counts(group),
        }
    }

    fn ongoing(&self, operation: RecordedOperation) -> OngoingOperation {
        OngoingOperation {
            group: operation.group,
            sequence: operation.sequence,
            waits_for: self.awaited(&operation),
            text: operation.text,
            age_us: operation.age.as_micros() as u64,
        }
    }

    /// The peer that keeps an operation from going on, where the engine carries it out.
    fn awaited(&self, operation: &RecordedOperation) -> Option<AwaitedPeer> {
        let group = self.groups.get(&operation.group)?;
        let mut operations = group.executor.operations.iter();
        let of_record = operations.find(|one| Some(one.sequence) == operation.sequence)?;
        let blocked = of_record.blocked()?;
        Some(AwaitedPeer {
            global_rank: group.name.rank(blocked.rank()),
            sends: blocked.is_link(),
        })
    }

    fn link_counts(&self, group: &GroupState) -> Vec<LinkCounts> {
        let links = self.links.values().map(|watched| &watched.link);
        let counted = links.filter_map(|link| {
            let traffic = link.traffic()?;
            Some(LinkCounts {
                global_rank: group.name.rank(group.connections.rank_of(link.peer())?),
                kind: link.kind().to_string(),
                sent_bytes: traffic.sent_bytes,
                received_bytes: traffic.received_bytes,
                retransmissions: traffic.retransmissions,
                queued_bytes: traffic.queued_bytes,
                quiet_us: traffic.quiet.as_micros() as u64,
            })
        });
        let mut counted: Vec<LinkCounts> = counted.collect();
        counted.sort_by_key(|link| std::cmp::Reverse(link.sent_bytes + link.received_bytes));
        counted.truncate(STATUS_LINKS_MAX);
        counted
    }
}
