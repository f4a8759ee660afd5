//! Table of unfinished operations: their parts, deadlines and ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_call::{Completion, Finished, TimeLimit};

use crate::Error;

/// The description of an operation for messages, the rank that it waits for, and its deadline.
#[derive(Clone, Debug)]
pub(crate) struct OperationDescription {
    pub(crate) operation: String,
    pub(crate) peer: Option<u32>,
    pub(crate) due: TimeLimit,
}

/// Identifies an operation of a group.
pub(super) type OperationId = u64;

struct OneSidedOperation {
    completion: Arc<Completion>,
    described: OperationDescription,
    /// The number of parts that have not ended.
    parts: usize,
    /// The destination of a cell's previous value.
    value: Option<Arc<AtomicU64>>,
}

/// A group's operations that have not ended.
#[derive(Default)]
pub(super) struct Operations {
    next: OperationId,
    unfinished: HashMap<OperationId, OneSidedOperation>,
}

impl Operations {
    /// Begins an operation with a number of parts, at least one.
    pub(super) fn begin(
        &mut self,
        described: OperationDescription,
        parts: usize,
        value: Option<Arc<AtomicU64>>,
    ) -> (OperationId, Arc<Completion>) {
        let completion = Completion::new();
        let operation = OneSidedOperation {
            completion: completion.clone(),
            described,
            parts,
            value,
        };
        self.next += 1;
        self.unfinished.insert(self.next, operation);
        (self.next, completion)
    }

    /// An operation that waits for a certain rank.
    pub(super) fn of_a_peer(&self) -> Option<&Arc<Completion>> {
        let mut operations = self.unfinished.values();
        let found = operations.find(|operation| operation.described.peer.is_some());
        found.map(|operation| &operation.completion)
    }

    /// Records that a part has ended.
    pub(super) fn part_done(&mut self, id: OperationId, finished: &mut Finished) {
        let Some(operation) = self.unfinished.get_mut(&id) else {
            return;
        };
        operation.parts -= 1;
        if operation.parts == 0
            && let Some(operation) = self.unfinished.remove(&id)
        {
            finished.push((operation.completion, Ok(())));
        }
    }

    /// Stores the previous value of a cell, and ends the operation.
    pub(super) fn fetched(&mut self, id: OperationId, value: u64, finished: &mut Finished) {
        if let Some(place) = self.unfinished.get(&id).and_then(|op| op.value.as_ref()) {
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
        if let Some(operation) = self.unfinished.remove(&id) {
            let error = why(&operation.described.operation);
            finished.push((operation.completion, Err(error)));
        }
    }

    /// Ends all operations.
    pub(super) fn fail(&mut self, error: &Error, finished: &mut Finished) {
        let ended = self.unfinished.drain();
        finished.extend(ended.map(|(_, operation)| (operation.completion, Err(error.clone()))));
    }

    pub(super) fn is_unfinished(&self, id: OperationId) -> bool {
        self.unfinished.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.unfinished.len()
    }

    /// The ranks that operations wait for; `None` for one that may wait for any.
    pub(super) fn awaited(&self) -> impl Iterator<Item = Option<u32>> {
        self.unfinished
            .values()
            .map(|operation| operation.described.peer)
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let operations = self.unfinished.values();
        operations.map(|operation| operation.described.due.deadline)
    }

    /// An operation that has missed its deadline: its description, the rank that it waits for, and
    /// its timeout.
    pub(super) fn overdue(&self, now: Instant) -> Option<(&str, Option<u32>, Duration)> {
        let mut operations = self
            .unfinished
            .values()
            .map(|operation| &operation.described);
        let late = operations.find(|described| described.due.deadline <= now)?;
        Some((&late.operation, late.peer, late.due.allowed))
    }
}
