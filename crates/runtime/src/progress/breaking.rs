//! Broken groups: which of their operations are still carried out, and which fail.
//!
//! [Note: Failures are ordered] A failure does not overtake what was complete before it. A rank
//! that learns that a group is broken issues nothing more in it, and reports how many collective
//! operations it has issued, its *limit*, with the message that the group is broken. The least
//! limit of all ranks counts: operations below it have been issued everywhere and go on, those from
//! it on fail. A rank that cannot complete an operation below the limit, because it needs a process
//! that has ended or left, or because nothing has moved for [`QUIET`], lowers the limit to that
//! operation, and reports that too. Each rank lowers its limit a few times at most, so the reports
//! end.
//!
//! While operations go on, peers may write into symmetric memory of this rank; what has failed is
//! only reported once that is over and the memory is private, as its owner may then use it again.

use std::time::{Duration, Instant};

use weft_call::Finished;
use weft_channel::ControlMessage;

use super::group_state::GroupState;
use crate::Error;

/// Ranks that can still report something do so within this time.
const QUIET: Duration = Duration::from_millis(500);

impl GroupState {
    /// Breaks the group and reports that to all members that there are links to. Operations that
    /// all ranks have issued go on.
    pub(crate) fn fail_and_tell(&mut self, error: &Error, finished: &mut Finished) {
        self.fail_from(u64::MAX, error, finished);
    }

    /// As [`GroupState::fail_and_tell`], over what has happened in an operation: those before it go
    /// on.
    pub(super) fn fail_from(&mut self, sequence: u64, error: &Error, finished: &mut Finished) {
        if self.broken.is_some() {
            return self.lower_limit(sequence, finished);
        }
        let own = self.connections.rank;
        let report = (error.told_by(self.name.rank(own)), Some(own));
        self.break_from(sequence, self.explained(error), report, finished);
    }

    /// Breaks the group here and on the other ranks; nothing that is incomplete here goes on.
    pub(crate) fn abort(&mut self, error: &Error, finished: &mut Finished) {
        self.remainder.aborted = true;
        let incomplete = self.executor.operations.iter().map(|op| op.sequence);
        self.fail_from(incomplete.min().unwrap_or(u64::MAX), error, finished);
    }

    /// Another rank reports that the group is broken, and its limit: passes it on as it is.
    pub(crate) fn told_broken(
        &mut self,
        error: Error,
        origin: Option<u32>,
        limit: u64,
        finished: &mut Finished,
    ) {
        if self.broken.is_some() {
            return self.lower_limit(limit, finished);
        }
        let here = self.explained(&self.as_heard_here(error.clone(), origin));
        self.break_from(limit, here, (error, origin), finished);
    }

    /// The error with what is known of it here. The flight recorder takes note of it.
    fn explained(&self, error: &Error) -> Error {
        let error = self.name.explained(self.matching.explained(error));
        match self.flight.failed(&error.to_string()) {
            Some(directory) => error.with_note(&format!("flight records: {directory}")),
            None => error,
        }
    }

    fn break_from(
        &mut self,
        limit: u64,
        error: Error,
        report: (Error, Option<u32>),
        finished: &mut Finished,
    ) {
        self.suspicion = None;
        self.broken = Some(error.clone());
        finished.push((self.end.clone(), Err(error)));
        // From here on no call gets a number.
        let issued = self.executor.end_issue();
        self.remainder.report = Some(report);
        self.remainder.since = Some(Instant::now());
        self.remainder.limit = limit.min(issued);
        self.report_limit();
        self.cut(finished);
    }

    /// A broken group cannot complete this operation.
    pub(super) fn lower_limit(&mut self, limit: u64, finished: &mut Finished) {
        if limit < self.remainder.limit {
            self.remainder.limit = limit;
            self.report_limit();
            self.cut(finished);
        }
    }

    /// Why the group is broken, as it was reported to the other ranks.
    pub(crate) fn reported(&self) -> Option<Error> {
        let report = self.remainder.report.as_ref();
        report.map(|(error, _)| error.clone())
    }

    fn report_limit(&self) {
        if let Some((error, origin)) = self.remainder.report.clone() {
            self.connections.tell_all(&ControlMessage::Broken {
                group: self.id,
                error,
                origin,
                limit: self.remainder.limit,
            });
        }
    }

    /// Ends what fails.
    fn cut(&mut self, finished: &mut Finished) {
        let Some(error) = self.broken.clone() else {
            return;
        };
        let (limit, held) = (self.remainder.limit, &mut self.remainder.held);
        (self.executor).fail_from(limit, &self.connections, &error, held);
        (self.matching).fail(&self.connections.links, &error, held);
        (self.one_sided).fail(&self.connections, &error, held);
        self.report_failed(finished);
    }

    /// Reports what has failed, as soon as nobody writes into its memory any more.
    pub(super) fn report_failed(&mut self, finished: &mut Finished) {
        let goes_on = !self.executor.operations.is_empty();
        if self.broken.is_none() || (goes_on && self.executor.symmetric.made()) {
            return;
        }
        let mut held = std::mem::take(&mut self.remainder.held);
        let private = goes_on || std::mem::replace(&mut self.remainder.private, true);
        if !private && let Err(refusal) = self.keep_symmetric_memory() {
            let note = format!("ranks may still write into symmetric memory: {refusal}");
            for (_, result) in &mut held {
                *result = result.clone().map_err(|error| error.with_note(&note));
            }
        }
        finished.append(&mut held);
    }

    /// An operation that a calling thread has begun goes on, or it fails.
    pub(super) fn check_goes_on(
        &mut self,
        sequence: u64,
        finished: &mut Finished,
    ) -> Result<(), Error> {
        let (Some(error), remainder) = (self.broken.clone(), &self.remainder) else {
            return Ok(());
        };
        if !remainder.aborted && sequence < remainder.limit {
            return Ok(());
        }
        self.lower_limit(sequence, finished);
        Err(error)
    }

    /// Gives up an operation of a broken group in which nothing moves.
    pub(super) fn give_up_quiet_operations(&mut self, now: Instant, finished: &mut Finished) {
        let Some(since) = self.remainder.since else {
            return;
        };
        let quiet = self.executor.front().filter(|operation| {
            let moved = operation.last_step.max(since);
            now.saturating_duration_since(moved) >= QUIET || operation.due.deadline <= now
        });
        if let Some(sequence) = quiet.map(|operation| operation.sequence).min() {
            self.lower_limit(sequence, finished);
        }
    }

    /// Ends the group for this rank, which leaves it. Others cannot complete what is under way.
    pub(crate) fn leave(&mut self, error: &Error, finished: &mut Finished) {
        self.remainder.aborted = true;
        let incomplete = self.executor.operations.iter().map(|op| op.sequence);
        match (incomplete.min(), &self.broken) {
            (Some(sequence), Some(_)) => self.lower_limit(sequence, finished),
            (Some(sequence), None) => {
                let report = (self.left_early(), Some(self.connections.rank));
                self.break_from(sequence, error.clone(), report, finished);
            }
            (None, Some(_)) => {}
            (None, None) => self.end_alone(error, finished),
        }
    }

    /// What others report of this rank where it leaves with operations under way.
    fn left_early(&self) -> Error {
        let own = self.connections.rank;
        Error::PeerLost {
            rank: Some(own),
            host: self.connections.host_name(own).into(),
            detail: "it left the group with operations under way".into(),
        }
    }

    /// Ends messages and one-sided operations here; the others notice that this rank leaves.
    fn end_alone(&mut self, error: &Error, finished: &mut Finished) {
        self.suspicion = None;
        self.remainder.private = self.pending() == 0;
        self.broken = Some(error.clone());
        self.executor.end_issue();
        self.cut(finished);
    }

    /// Keeps what is written to this rank's symmetric memory from now on, whatever ranks do there
    /// that have not learned yet that the group is broken.
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

    /// If a peer reports this rank lost, that peer is lost to this rank.
    pub(crate) fn as_heard_here(&self, error: Error, origin: Option<u32>) -> Error {
        match (error, origin) {
            (Error::PeerLost { rank, detail, .. }, Some(teller))
                if rank == Some(self.connections.rank) && teller < self.size() =>
            {
                Error::PeerLost {
                    rank: origin,
                    host: self.connections.host_name(teller).into(),
                    detail: format!("it has given up this rank: {detail}"),
                }
            }
            (error, _) => error,
        }
    }
}
