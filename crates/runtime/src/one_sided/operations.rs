//! Operations under way: their parts, deadlines and ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_call::{Completion, Due, Finished};

use crate::Error;

/// What an operation is, for messages, and the rank that it waits for, if it is one.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) what: String,
    pub(crate) peer: Option<u32>,
    pub(crate) due: Due,
}

/// Identifies an operation of a group.
pub(super) type OperationId = u64;

struct Operation {
    completion: Arc<Completion>,
    described: Described,
    /// What is still missing.
    parts: usize,
    /// Where what a cell held before goes.
    value: Option<Arc<AtomicU64>>,
}

/// A group's operations that have not ended.
#[derive(Default)]
pub(super) struct Operations {
    next: OperationId,
    under_way: HashMap<OperationId, Operation>,
}

impl Operations {
    /// Begins an operation of so many parts, of which there is at least one.
    pub(super) fn begin(
        &mut self,
        described: Described,
        parts: usize,
        value: Option<Arc<AtomicU64>>,
    ) -> (OperationId, Arc<Completion>) {
        let completion = Completion::new();
        let operation = Operation {
            completion: completion.clone(),
            described,
            parts,
            value,
        };
        self.next += 1;
        self.under_way.insert(self.next, operation);
        (self.next, completion)
    }

    /// One that waits for a certain rank.
    pub(super) fn of_a_peer(&self) -> Option<&Arc<Completion>> {
        let mut operations = self.under_way.values();
        let found = operations.find(|operation| operation.described.peer.is_some());
        found.map(|operation| &operation.completion)
    }

    /// Takes note that a part is done.
    pub(super) fn part_done(&mut self, id: OperationId, finished: &mut Finished) {
        let Some(operation) = self.under_way.get_mut(&id) else {
            return;
        };
        operation.parts -= 1;
        if operation.parts == 0
            && let Some(operation) = self.under_way.remove(&id)
        {
            finished.push((operation.completion, Ok(())));
        }
    }

    /// Takes note of what a cell held before, which ends the operation.
    pub(super) fn fetched(&mut self, id: OperationId, value: u64, finished: &mut Finished) {
        if let Some(place) = self.under_way.get(&id).and_then(|op| op.value.as_ref()) {
            place.store(value, Ordering::Release);
        }
        self.part_done(id, finished);
    }

    /// Ends an operation with an error that names it.
    pub(super) fn refuse(
        &mut self,
        id: OperationId,
        why: impl FnOnce(&str) -> Error,
        finished: &mut Finished,
    ) {
        if let Some(operation) = self.under_way.remove(&id) {
            let error = why(&operation.described.what);
            finished.push((operation.completion, Err(error)));
        }
    }

    /// Ends all.
    pub(super) fn fail(&mut self, error: &Error, finished: &mut Finished) {
        let ended = self.under_way.drain();
        finished.extend(ended.map(|(_, operation)| (operation.completion, Err(error.clone()))));
    }

    pub(super) fn is_under_way(&self, id: OperationId) -> bool {
        self.under_way.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// The ranks that operations wait for; nothing for one that may wait for any.
    pub(super) fn awaited(&self) -> impl Iterator<Item = Option<u32>> {
        self.under_way
            .values()
            .map(|operation| operation.described.peer)
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let operations = self.under_way.values();
        operations.map(|operation| operation.described.due.deadline)
    }

    /// An operation that is late: what it is, the rank that it waits for, and the time that it was
    /// given.
    pub(super) fn overdue(&self, now: Instant) -> Option<(&str, Option<u32>, Duration)> {
        let mut operations = self
            .under_way
            .values()
            .map(|operation| &operation.described);
        let late = operations.find(|described| described.due.deadline <= now)?;
        Some((&late.what, late.peer, late.due.allowed))
    }
}
