//! Stalls: missed deadlines, and ranks with different calls.

use std::time::{Duration, Instant};

use weft_call::{Fingerprint, Finished};
use weft_channel::ControlMessage;

use super::group_state::GroupState;
use super::suspicion::SuspectedDesync;
use crate::Error;

/// A rank that waits longer than this asks whether the others made the same call.
const QUERY_AFTER: Duration = Duration::from_secs(1);

impl GroupState {
    /// What ends the group now, if anything.
    pub(super) fn verdict(&self, now: Instant) -> Option<Error> {
        match &self.suspicion {
            _ if self.broken.is_some() => None,
            Some(suspicion) => {
                let over = suspicion.since + QUERY_AFTER <= now;
                over.then(|| suspicion.error.clone())
            }
            None => self.overdue(now),
        }
    }

    /// The error of the operation or message that has missed its deadline, if any.
    fn overdue(&self, now: Instant) -> Option<Error> {
        if let Some((operation, rank, after)) = self.matching.overdue(now) {
            let whom = rank.map_or("any rank".into(), |rank| self.describe(rank));
            return Some(Error::Timeout {
                operation: format!("{operation} in {}", self.name),
                waiting_for: whom,
                after,
            });
        }
        if let Some((operation, rank, after)) = self.one_sided.overdue(now) {
            let whom = rank.map_or("another rank's signal".into(), |rank| self.describe(rank));
            return Some(Error::Timeout {
                operation: format!("{operation} in {}", self.name),
                waiting_for: whom,
                after,
            });
        }
        let operation = self
            .executor
            .operations
            .iter()
            .find(|operation| operation.due.deadline <= now)?;
        let blocked = self
            .executor
            .operations
            .iter()
            .find_map(|operation| operation.blocked());
        let waiting_for = match blocked {
            Some(blocked) => format!("{}: {blocked}", self.describe(blocked.rank())),
            None => "operations before it".into(),
        };
        Some(Error::Timeout {
            operation: format!(
                "{} in {}, its operation {}",
                self.shown(operation.fingerprint),
                self.name,
                operation.sequence
            ),
            waiting_for,
            after: operation.due.allowed,
        })
    }

    /// Asks those who keep operations waiting whether they made the same call.
    pub(super) fn ask_about_stalls(&mut self, now: Instant) {
        for operation in &mut self.executor.operations {
            let Some(blocked) = operation.blocked().copied() else {
                continue;
            };
            if now - operation.last_step < QUERY_AFTER || now - operation.last_query < QUERY_AFTER {
                continue;
            }
            operation.last_query = now;
            let query = ControlMessage::Query {
                group: self.id,
                sequence: operation.sequence,
                fingerprint: operation.fingerprint,
            };
            if let Some(link) = &self.connections.links[blocked.rank() as usize] {
                // A link that fails is noticed when it is read.
                let _ = link.message(&query.encode());
            }
        }
    }

    /// Answers a query, if this rank called something else.
    pub(super) fn answer(&self, rank: u32, sequence: u64, theirs: Fingerprint) {
        let Some(mine) = self.executor.order().recall(sequence) else {
            return;
        };
        if mine.history != theirs.history {
            self.send_history(rank);
        } else if !mine.agrees(theirs) {
            let answer = ControlMessage::Different {
                group: self.id,
                sequence,
                fingerprint: mine,
            };
            self.tell(rank, &answer);
        }
    }

    fn send_history(&self, rank: u32) {
        let recent = self.executor.order().recent();
        let group = self.id;
        self.tell(rank, &ControlMessage::History { group, recent });
    }

    fn tell(&self, rank: u32, message: &ControlMessage) {
        if let Some(link) = &self.connections.links[rank as usize] {
            // A link that fails is noticed when it is read.
            let _ = link.message(&message.encode());
        }
    }

    /// A rank called something else in an operation, or before it: then it is asked to find out
    /// where.
    pub(super) fn differs(
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
            self.fail_and_tell(&error, finished);
        } else if self.suspicion.is_none() {
            self.send_history(rank);
            let place = format!("in a call that is no longer known, and then, {place}");
            self.suspicion = Some(SuspectedDesync {
                since: Instant::now(),
                error: self.desync(place, rank, mine, theirs),
            });
        }
    }

    /// Looks for the first operation in which another rank called something else.
    pub(super) fn compare(
        &mut self,
        rank: u32,
        recent: &[(u64, Fingerprint)],
        finished: &mut Finished,
    ) {
        let found = self.executor.order().first_difference(recent);
        if let Some((sequence, mine, theirs)) = found {
            let place = format!("as operation {sequence} of {}", self.name);
            let error = self.desync(place, rank, Some(mine), theirs);
            self.fail_and_tell(&error, finished);
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
        let mine = known.unwrap_or_else(|| "called something that it no longer knows".into());
        let mut calls = [(me, mine), (self.name.rank(rank), other)];
        calls.sort();
        Error::Desync { place, calls }
    }

    /// "all-reduce(10 x float32, sum) by ring": a call, and its algorithm where that is settled and
    /// known.
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
