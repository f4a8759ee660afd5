//! Detection of stalls: missed deadlines, and ranks that made different calls (desync).

use std::time::Instant;

use weft_call::{Fingerprint, Finished};
use weft_channel::ControlMessage;

use super::group_state::GroupState;
use super::questions::Questions;
use super::suspicion::SuspectedDesync;
use super::wait_causes::{QUERY_AFTER, query_interval};
use crate::Error;

impl GroupState {
    /// Returns the error of a missed deadline or of a suspected desync that was not resolved in
    /// time.
    pub(super) fn stall_error(&self, now: Instant, questions: &Questions) -> Option<Error> {
        match &self.suspicion {
            _ if self.broken.is_some() => None,
            Some(suspicion) => {
                let over = suspicion.since + QUERY_AFTER <= now;
                over.then(|| suspicion.error.clone())
            }
            None => self.overdue(now, questions),
        }
    }

    /// Returns the timeout of the first operation or message that missed its deadline.
    fn overdue(&self, now: Instant, questions: &Questions) -> Option<Error> {
        if let Some((operation, rank, after)) = self.matching.overdue(now) {
            let peer = rank.map_or("any rank".into(), |rank| self.describe(rank));
            return Some(Error::Timeout {
                operation: format!("{operation} in {}", self.name),
                waiting_for: peer,
                after,
            });
        }
        if let Some((operation, rank, after)) = self.one_sided.overdue(now) {
            let peer = rank.map_or("another rank's signal".into(), |rank| self.describe(rank));
            return Some(Error::Timeout {
                operation: format!("{operation} in {}", self.name),
                waiting_for: peer,
                after,
            });
        }
        let operation = (self.executor.operations.iter())
            .find(|operation| operation.due.deadline <= now)
            .filter(|operation| {
                operation.due.deadline + 2 * query_interval(operation) <= now
                    || self.is_explained(questions)
            })?;
        Some(Error::Timeout {
            operation: format!(
                "{} in {}, its operation {}",
                self.shown(operation.fingerprint),
                self.name,
                operation.sequence
            ),
            waiting_for: (self.awaited(questions)).unwrap_or_else(|| "operations before it".into()),
            after: operation.due.allowed,
        })
    }

    /// Asks the ranks that operations wait for whether they made the same call, and why they wait.
    pub(super) fn query_stalled_peers(&mut self, now: Instant) {
        for operation in &mut self.executor.operations {
            let Some(blocked) = operation.blocked().copied() else {
                continue;
            };
            let is_last = (operation.last_query..now).contains(&operation.due.deadline);
            let stalled = now - operation.last_step.max(operation.last_query);
            if !is_last && stalled < query_interval(operation) {
                continue;
            }
            operation.last_query = now;
            let query = ControlMessage::Query {
                group: self.id,
                sequence: operation.sequence,
                fingerprint: operation.fingerprint,
            };
            if let Some(link) = &self.connections.links[blocked.rank() as usize] {
                // A broken link is detected when it is read.
                let _ = link.message(&query.encode());
            }
        }
    }

    /// Answers a query: with this rank's call, if it was another one, or why its part takes long.
    pub(super) fn on_query(
        &mut self,
        rank: u32,
        sequence: u64,
        theirs: Fingerprint,
        questions: &Questions,
    ) {
        let mine = self.executor.order().recall(sequence);
        match mine {
            Some(mine) if mine.history != theirs.history => self.send_history(rank),
            Some(mine) if !mine.agrees(theirs) => {
                let answer = ControlMessage::Different {
                    group: self.id,
                    sequence,
                    fingerprint: mine,
                };
                self.send_to(rank, &answer);
            }
            _ => self.explain_wait(rank, sequence, questions),
        }
    }

    fn send_history(&self, rank: u32) {
        let recent = self.executor.order().recent();
        let group = self.id;
        self.send_to(rank, &ControlMessage::History { group, recent });
    }

    pub(super) fn send_to(&self, rank: u32, message: &ControlMessage) {
        if let Some(link) = &self.connections.links[rank as usize] {
            // A broken link is detected when it is read.
            let _ = link.message(&message.encode());
        }
    }

    /// Handles a report that a rank made another call in an operation. If an earlier operation
    /// differed, asks that rank to find which one.
    pub(super) fn on_desync_report(
        &mut self,
        sequence: u64,
        rank: u32,
        mine: Option<Fingerprint>,
        theirs: Fingerprint,
        finished: &mut Finished,
    ) {
        let mine = mine.or_else(|| self.executor.order().recall(sequence));
        let place = format!("as operation {sequence} of {}", self.name);
        if mine.is_some_and(|mine| mine.history == theirs.history) {
            let error = self.desync(place, rank, mine, theirs);
            self.break_group(&error, finished);
        } else if self.suspicion.is_none() {
            self.send_history(rank);
            let place = format!("in an earlier call that is no longer recorded, and then, {place}");
            self.suspicion = Some(SuspectedDesync {
                since: Instant::now(),
                error: self.desync(place, rank, mine, theirs),
            });
        }
    }

    /// Searches another rank's recent calls for the first that differs from this rank's.
    pub(super) fn on_history(
        &mut self,
        rank: u32,
        recent: &[(u64, Fingerprint)],
        finished: &mut Finished,
    ) {
        let found = self.executor.order().first_difference(recent);
        if let Some((sequence, mine, theirs)) = found {
            let place = format!("as operation {sequence} of {}", self.name);
            let error = self.desync(place, rank, Some(mine), theirs);
            self.break_group(&error, finished);
        }
    }

    fn desync(
        &self,
        place: String,
        rank: u32,
        mine: Option<Fingerprint>,
        theirs: Fingerprint,
    ) -> Error {
        let me = self.name.rank(self.connections.rank);
        let mut other = format!("called {}", self.shown(theirs));
        if theirs.plan().is_some() && self.algorithm(theirs).is_none() {
            other +=
                &format!(" by an algorithm, tile size or schedule that rank {me} does not know");
        }
        let known = mine.map(|mine| format!("called {}", self.shown(mine)));
        if mine.is_some_and(|mine| mine.history == theirs.history) && known.as_ref() == Some(&other)
        {
            other += " with another tile size or kind of memory";
        }
        let mine = known.unwrap_or_else(|| "made a call that it no longer has on record".into());
        let mut calls = [(me, mine), (self.name.rank(rank), other)];
        calls.sort();
        Error::Desync { place, calls }
    }

    /// "all-reduce(10 x float32, sum) by ring": a call, with its algorithm where that is chosen and
    /// known here.
    fn shown(&self, call: Fingerprint) -> String {
        match self.algorithm(call) {
            Some(name) => format!("{call} by {name}"),
            None => call.to_string(),
        }
    }

    fn algorithm(&self, call: Fingerprint) -> Option<String> {
        let (collective, plan) = call.plan()?;
        self.selector.name_of(collective, plan)
    }
}
