//! Broken groups: the operations that still complete, and those that fail.
//!
//! [Note: Failures are ordered] A failure does not overtake operations that were complete before
//! it. A rank that learns that a group is broken issues nothing more in it. With its report that
//! the group is broken, it sends its *limit*: the number of collective operations that it has
//! issued. The lowest limit of all ranks counts. Operations below it were issued by every rank and
//! continue; the others fail. A rank may be unable to complete an operation below the limit: the
//! operation needs a process that has ended or left, or nothing has moved for [`QUIET`]. It then
//! lowers the limit to that operation, and reports that too. Each rank lowers its limit only a few
//! times, so the reports end.
//!
//! While operations continue, peers may write into this rank's symmetric memory. So failed
//! operations are reported to their callers only after all operations have ended and the memory is
//! private: a caller may reuse its memory then.

use std::time::{Duration, Instant};

use weft_call::Finished;
use weft_channel::ControlMessage;

use super::group_state::GroupState;
use crate::Error;

/// A broken group gives up an operation in which nothing has moved for this long.
const QUIET: Duration = Duration::from_millis(500);

/// Instead of the number of the first operation that fails: those which all ranks have called may
/// still complete.
pub(crate) const NO_OPERATION: u64 = u64::MAX;

impl GroupState {
    /// Breaks the group, and reports that to all members that have links to this rank. Operations
    /// that all ranks have issued continue.
    pub(crate) fn break_group(&mut self, error: &Error, finished: &mut Finished) {
        self.break_group_from(NO_OPERATION, error, finished);
    }

    /// As [`GroupState::break_group`], because operation `sequence` failed: those before it
    /// continue.
    pub(super) fn break_group_from(
        &mut self,
        sequence: u64,
        error: &Error,
        finished: &mut Finished,
    ) {
        if self.broken.is_some() {
            return self.end_from(sequence, finished);
        }
        let own = self.connections.rank;
        let report = (error.reported_by(self.name.rank(own)), Some(own));
        self.break_with_report(sequence, self.explained(error), report, finished);
    }

    /// Breaks the group here and on the other ranks. All incomplete operations of this rank fail.
    pub(crate) fn abort(&mut self, error: &Error, finished: &mut Finished) {
        self.wind_down.aborted = true;
        self.break_group_from(self.first_incomplete(), error, finished);
    }

    /// As [`GroupState::abort`], by the report of another group of the same ranks.
    pub(crate) fn abort_as_reported(
        &mut self,
        (error, origin): (Error, Option<u32>),
        finished: &mut Finished,
    ) {
        self.wind_down.aborted = true;
        self.break_as_reported(error, origin, self.first_incomplete(), finished);
    }

    fn first_incomplete(&self) -> u64 {
        let incomplete = self.executor.operations.iter().map(|op| op.sequence);
        incomplete.min().unwrap_or(NO_OPERATION)
    }

    /// Breaks the group as another rank reports it, with that rank's limit. The report is passed on
    /// unchanged.
    pub(crate) fn break_as_reported(
        &mut self,
        error: Error,
        origin: Option<u32>,
        limit: u64,
        finished: &mut Finished,
    ) {
        if self.broken.is_some() {
            return self.end_from(limit, finished);
        }
        let here = self.explained(&self.as_seen_here(error.clone(), origin));
        self.break_with_report(limit, here, (error, origin), finished);
    }

    /// Adds what this rank knows about an error, and records the failure in the flight recorder.
    fn explained(&self, error: &Error) -> Error {
        let error = self.name.explained(self.matching.explained(error));
        match self.flight.failed(&error.to_string()) {
            Some(directory) => error.with_note(&format!("flight records: {directory}")),
            None => error,
        }
    }

    fn break_with_report(
        &mut self,
        limit: u64,
        error: Error,
        report: (Error, Option<u32>),
        finished: &mut Finished,
    ) {
        self.suspicion = None;
        self.broken = Some(error.clone());
        finished.push((self.end.clone(), Err(error)));
        // No later call gets a number.
        let issued = self.executor.end_issue();
        self.wind_down.report = Some(report);
        self.wind_down.since = Some(Instant::now());
        self.wind_down.limit = limit.min(issued);
        self.report_limit();
        self.end_failed(finished);
    }

    /// Fails operation `limit` of a broken group and all after it.
    pub(super) fn end_from(&mut self, limit: u64, finished: &mut Finished) {
        if limit < self.wind_down.limit {
            self.wind_down.limit = limit;
            self.report_limit();
            self.end_failed(finished);
        }
    }

    /// The error that this rank reported to the others, and the rank that found it.
    pub(crate) fn report(&self) -> Option<(Error, Option<u32>)> {
        self.wind_down.report.clone()
    }

    fn report_limit(&self) {
        if let Some((error, origin)) = self.wind_down.report.clone() {
            self.connections.send_to_all(&ControlMessage::Broken {
                group: self.id,
                error,
                origin,
                limit: self.wind_down.limit,
            });
        }
    }

    /// Ends the operations from the limit on, all messages and one-sided operations.
    fn end_failed(&mut self, finished: &mut Finished) {
        let Some(error) = self.broken.clone() else {
            return;
        };
        let (limit, held) = (self.wind_down.limit, &mut self.wind_down.held);
        (self.executor).fail_from(limit, &self.connections, &error, held);
        (self.matching).fail(&self.connections.links, &error, held);
        (self.one_sided).fail(&self.connections, &error, held);
        self.report_failed(finished);
    }

    /// Reports failed operations to their callers, once no peer writes into their memory any more.
    pub(super) fn report_failed(&mut self, finished: &mut Finished) {
        let continues = !self.executor.operations.is_empty();
        if self.broken.is_none() || (continues && self.executor.symmetric.made()) {
            return;
        }
        let mut held = std::mem::take(&mut self.wind_down.held);
        let private = continues || std::mem::replace(&mut self.wind_down.private, true);
        if !private && let Err(refusal) = self.keep_symmetric_memory() {
            let note = format!("ranks may still write into symmetric memory: {refusal}");
            for (_, result) in &mut held {
                *result = result.clone().map_err(|error| error.with_note(&note));
            }
        }
        finished.append(&mut held);
    }

    /// Checks whether an operation that began on the calling thread may continue.
    pub(super) fn check_continues(
        &mut self,
        sequence: u64,
        finished: &mut Finished,
    ) -> Result<(), Error> {
        let (Some(error), wind_down) = (self.broken.clone(), &self.wind_down) else {
            return Ok(());
        };
        if !wind_down.aborted && sequence < wind_down.limit {
            return Ok(());
        }
        self.end_from(sequence, finished);
        Err(error)
    }

    /// Gives up an operation of a broken group in which nothing moves.
    pub(super) fn give_up_stuck_operations(&mut self, now: Instant, finished: &mut Finished) {
        let Some(since) = self.wind_down.since else {
            return;
        };
        let quiet = self.executor.front().filter(|operation| {
            let moved = operation.last_step.max(since);
            now.saturating_duration_since(moved) >= QUIET || operation.due.deadline <= now
        });
        if let Some(sequence) = quiet.map(|operation| operation.sequence).min() {
            self.end_from(sequence, finished);
        }
    }

    /// Ends the group for this rank, which leaves it. Its incomplete operations fail on all ranks.
    pub(crate) fn leave(&mut self, error: &Error, finished: &mut Finished) {
        self.wind_down.aborted = true;
        let incomplete = self.executor.operations.iter().map(|op| op.sequence);
        match (incomplete.min(), &self.broken) {
            (Some(sequence), Some(_)) => self.end_from(sequence, finished),
            (Some(sequence), None) => {
                let report = (self.left_early(), Some(self.connections.rank));
                self.break_with_report(sequence, error.clone(), report, finished);
            }
            (None, Some(_)) => {}
            (None, None) => self.end_alone(error, finished),
        }
    }

    /// The error on other ranks if this rank leaves during an operation.
    fn left_early(&self) -> Error {
        let own = self.connections.rank;
        Error::PeerLost {
            rank: Some(own),
            host: self.connections.host_name(own).into(),
            detail: "it left the group before all operations had ended".into(),
        }
    }

    /// Ends messages and one-sided operations here. The others detect that this rank leaves.
    fn end_alone(&mut self, error: &Error, finished: &mut Finished) {
        self.suspicion = None;
        self.wind_down.private = self.pending() == 0;
        self.broken = Some(error.clone());
        self.executor.end_issue();
        self.end_failed(finished);
    }

    /// Makes this rank's symmetric memory private, so that ranks that do not know yet that the
    /// group is broken cannot change it.
    fn keep_symmetric_memory(&self) -> std::io::Result<()> {
        let connections = &self.connections;
        let maps = |rank: &u32| {
            let link = connections.links[*rank as usize].as_ref();
            link.is_some_and(|link| link.capabilities().maps)
        };
        let mut mapped = (0..self.size()).filter(maps);
        match mapped.any(|rank| connections.may_be_written_by(rank)) {
            true => self.executor.symmetric.make_private(connections.rank),
            false => Ok(()),
        }
    }

    /// If a peer reports this rank as lost, treats that peer as lost.
    pub(crate) fn as_seen_here(&self, error: Error, origin: Option<u32>) -> Error {
        match (error, origin) {
            (Error::PeerLost { rank, detail, .. }, Some(reporter))
                if rank == Some(self.connections.rank) && reporter < self.size() =>
            {
                Error::PeerLost {
                    rank: origin,
                    host: self.connections.host_name(reporter).into(),
                    detail: format!("it reported this rank as lost: {detail}"),
                }
            }
            (error, _) => error,
        }
    }
}
