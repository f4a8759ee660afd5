//! Executor: a group's unfinished operations, their admission, and their lanes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_algorithms::MemoryClass;
use weft_call::{Call, Completion, Counts, Finished, Op, Order, TimeLimit};
use weft_channel::{Connections, LANES};
use weft_flight::GroupFlight;
use weft_memory::{Bases, Pieces, Pool, access};
use weft_program::Geometry;
use weft_transport::Segment;

use super::budget::Budget;
use super::calling_thread::{CallingThread, Entered, InlineOutcome};
use super::interpret::GroupFailure;
use super::operation::{Lane, Operation, OperationMemory, Running, ValueAgreement};
use super::puts::Puts;
use super::strips::Strips;
use super::tiles;
use crate::Error;
use crate::selection::{Decision, agreement_call};

/// The operations of one group, and their drivers.
pub(crate) struct Executor {
    pub(crate) lanes: [Lane; LANES],
    pub(crate) operations: VecDeque<Operation>,
    pub(crate) order: Arc<Mutex<Order>>,
    /// The calling-thread path, where all ranks map each other's memory.
    pub(crate) calling_thread: Option<Arc<CallingThread>>,
    pub(crate) symmetric: Arc<Pieces>,
    /// The number of operations that ran in lanes by a plan for symmetric memory.
    pub(crate) symmetric_operations: u64,
    /// The number of steps that this rank has executed for others.
    pub(crate) steps_helped: u64,
    flight: GroupFlight,
    ranks: u32,
    timeout: Duration,
}

/// A call with all that it needs to become an operation.
struct PreparedCall {
    decision: Arc<Decision>,
    bases: Bases,
    agreement: Option<Arc<ValueAgreement>>,
    keep: Option<OperationMemory>,
    entered: Option<Entered>,
}

impl PreparedCall {
    /// A call on memory that only its rank reaches.
    fn new(call: &Call, decision: Arc<Decision>) -> Self {
        PreparedCall {
            decision,
            bases: Bases::own(call),
            agreement: None,
            keep: None,
            entered: None,
        }
    }
}

impl Executor {
    pub(crate) fn new(timeout: Duration, ranks: u32, flight: GroupFlight) -> Self {
        Executor {
            lanes: Default::default(),
            operations: VecDeque::new(),
            order: Arc::default(),
            calling_thread: None,
            symmetric: Arc::default(),
            symmetric_operations: 0,
            steps_helped: 0,
            flight,
            ranks,
            timeout,
        }
    }

    /// The operations in the order of their calls.
    pub(crate) fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues a call, after the agreement that it may need.
    pub(crate) fn enqueue(
        &mut self,
        connections: &Connections,
        mut call: Call,
        decision: Arc<Decision>,
        completion: Arc<Completion>,
    ) {
        if let Some(entered) = self.enter(&call) {
            self.resume(call, decision, completion, entered);
            return;
        }
        let (rank, ranks) = (connections.rank, connections.size());
        let scaled = scaled_input(&call, rank, ranks);
        if let Some(OperationMemory::Scaled(copy)) = &scaled {
            call.input = copy.as_ptr();
            call = call.for_schedules(rank);
        }
        let symmetric = match decision.symmetric {
            Some(_) => self.symmetric.bases(&call, rank, ranks),
            None => None,
        };
        let place = symmetric.as_ref().map_or(0, |(place, _)| *place);
        let agreement =
            (decision.agreement.is_some()).then(|| self.enqueue_agreement(&call, &decision, place));
        let ready = PreparedCall {
            bases: symmetric.map_or_else(|| Bases::own(&call), |(_, bases)| bases),
            agreement,
            keep: scaled,
            ..PreparedCall::new(&call, decision)
        };
        self.push(call, completion, ready);
    }

    /// Enqueues a call that has been entered on the calling-thread path.
    pub(crate) fn resume(
        &mut self,
        call: Call,
        decision: Arc<Decision>,
        completion: Arc<Completion>,
        entered: Entered,
    ) {
        let ready = PreparedCall {
            entered: Some(entered),
            ..PreparedCall::new(&call, decision)
        };
        self.push(call, completion, ready);
    }

    /// Enters a call that runs on the calling-thread path.
    fn enter(&self, call: &Call) -> Option<Entered> {
        let path = self.calling_thread.as_ref()?;
        Some(path.enter(call, path.choose(call)?))
    }

    fn enqueue_agreement(
        &mut self,
        call: &Call,
        decision: &Decision,
        symmetric: u64,
    ) -> Arc<ValueAgreement> {
        let value = match &call.counts {
            Counts::Equal(_) => symmetric,
            Counts::PerRank(_) if call.knows_all_blocks() => symmetric,
            Counts::PerRank(list) => list.iter().copied().max().unwrap_or(0),
            Counts::PerPair { send, receive } => {
                send.iter().chain(receive).copied().max().unwrap_or(0)
            }
        };
        let completion = Completion::new();
        let agreement = ValueAgreement::new(value, completion.clone());
        let small = agreement_call(agreement.memory(), call.priority, call.timeout);
        let ready = PreparedCall {
            keep: Some(OperationMemory::ValueAgreement(agreement.clone())),
            entered: self.enter(&small),
            ..PreparedCall::new(&small, decision.of_agreement())
        };
        self.push(small, completion, ready);
        agreement
    }

    fn push(&mut self, call: Call, completion: Arc<Completion>, ready: PreparedCall) {
        let now = Instant::now();
        let (sequence, fingerprint) = match &ready.entered {
            Some(entered) => (entered.sequence, entered.fingerprint),
            None => self.order().enter(&call, 0),
        };
        let record = match &ready.entered {
            Some(entered) => entered.record,
            None => (self.flight).issue(&call.flight_entry(sequence, 0, self.ranks), false),
        };
        if matches!(ready.keep, Some(OperationMemory::ValueAgreement(_))) {
            self.flight.mark_internal(record);
        }
        completion.set_record(self.flight.recorded(record));
        let path = self.calling_thread.as_ref();
        let inline = (ready.entered).filter(|entered| entered.outcome != Some(InlineOutcome::Lane));
        let inline = inline.zip(path.and_then(|path| path.choose(&call)));
        // A call that began on a calling thread is enqueued late.
        let later = |operation: &&Operation| operation.sequence > sequence;
        let position =
            self.operations.len() - self.operations.iter().rev().take_while(later).count();
        let operation = Operation {
            sequence,
            completion,
            due: TimeLimit::within(call.timeout.unwrap_or(self.timeout)),
            inline: inline.map(|(entered, choice)| (entered, choice.kept())),
            call,
            fingerprint,
            decision: ready.decision,
            bases: ready.bases,
            agreement: ready.agreement,
            running: None,
            refusal: None,
            waiting: None,
            last_step: now,
            last_query: now,
            _keep: ready.keep,
        };
        self.operations.insert(position, operation);
        if let (Some(path), Some(entered)) = (&self.calling_thread, &ready.entered) {
            path.handed_over(entered);
        }
    }

    /// The operations that may run: the first of each lane, and the first of the calling-thread
    /// path.
    pub(crate) fn front(&self) -> impl Iterator<Item = &Operation> {
        let mut seen = [false; LANES];
        let inline = |op: &&Operation| op.inline.is_some();
        let first = self.operations.iter().filter(inline);
        let first = first.min_by_key(|op| op.sequence).map(|op| op.sequence);
        self.operations.iter().filter(move |op| match &op.inline {
            Some(_) => Some(op.sequence) == first,
            None => !std::mem::replace(&mut seen[op.lane()], true),
        })
    }

    /// Advances an operation as far as possible. True if anything was done.
    pub(crate) fn advance(
        &mut self,
        connections: &mut Connections,
        sequence: u64,
        pool: &Pool,
        budget: &mut Budget,
        now: Instant,
        finished: &mut Finished,
    ) -> Result<bool, GroupFailure> {
        let mut operations = self.operations.iter();
        let Some(position) = operations.position(|op| op.sequence == sequence) else {
            return Ok(false);
        };
        let progressed = match self.operations[position].inline {
            Some(_) => self.advance_inline(position, connections, pool)?,
            None => {
                self.admit(position, connections, pool)
                    .map_err(GroupFailure::Other)?
                    && self.advance_tiles(position, connections, pool, budget)?
            }
        };
        if progressed {
            self.operations[position].last_step = now;
        }
        if self.operations[position].is_done()
            && let Some(operation) = self.operations.remove(position)
        {
            let outcome = operation.refusal.map_or(Ok(()), Err);
            finished.push((operation.completion, outcome));
        }
        Ok(progressed)
    }

    fn advance_tiles(
        &mut self,
        position: usize,
        connections: &mut Connections,
        pool: &Pool,
        budget: &mut Budget,
    ) -> Result<bool, GroupFailure> {
        let operation = &mut self.operations[position];
        let lane = &mut self.lanes[operation.lane()];
        tiles::advance(operation, lane, connections, pool.segment(), budget)
    }

    /// Executes a step for a rank that is behind, if the operation has one that may be taken over.
    pub(crate) fn help(
        &mut self,
        connections: &Connections,
        sequence: u64,
        pool: &Segment,
        budget: &mut Budget,
    ) -> Result<bool, GroupFailure> {
        let mut operations = self.operations.iter_mut();
        let Some(operation) = operations.find(|op| op.sequence == sequence) else {
            return Ok(false);
        };
        let helped = tiles::help(operation, connections, pool, budget)?;
        self.steps_helped += u64::from(helped);
        Ok(helped)
    }

    fn advance_inline(
        &mut self,
        position: usize,
        connections: &mut Connections,
        pool: &Pool,
    ) -> Result<bool, GroupFailure> {
        let operation = &mut self.operations[position];
        let (Some(path), Some((entered, chosen))) = (&self.calling_thread, &mut operation.inline)
        else {
            return Ok(false);
        };
        if !path.is_next(entered) {
            return Ok(false);
        }
        let choice = chosen.choice();
        operation.waiting = path.prepare(connections, pool, choice)?;
        if operation.waiting.is_some() {
            return Ok(false);
        }
        operation.waiting =
            path.advance(&operation.call, choice, entered, &connections.departed)?;
        if entered.outcome == Some(InlineOutcome::Lane) {
            operation.inline = None;
        }
        Ok(operation.waiting.is_none())
    }

    /// Admits an operation that is the first in its lane. False if it must still wait.
    fn admit(
        &mut self,
        position: usize,
        connections: &mut Connections,
        pool: &Pool,
    ) -> Result<bool, Error> {
        let operation = &self.operations[position];
        if operation.running.is_some() {
            return Ok(true);
        }
        if (operation.agreement.as_ref()).is_some_and(|agreement| !agreement.is_over()) {
            return Ok(false);
        }
        let lane = operation.lane();
        if self.has_predecessor(operation.sequence, lane) {
            return Ok(false);
        }
        let (plan, largest) = operation.settle();
        let plan = match plan {
            Ok(plan) => plan.clone(),
            Err(why) => {
                self.operations[position].refusal = Some(why);
                return Ok(false);
            }
        };
        let geometry = Geometry::tiled(
            &operation.call,
            &plan.program.shape,
            connections.layout,
            largest,
            plan.tile_bytes,
            plan.wire,
        )?;
        let parts = plan.program.parts(lane, geometry.is_small());
        connections.grant(pool, plan.program.neighbours.iter().copied(), parts)?;
        let first = self.lanes[lane].assigned;
        self.lanes[lane].assigned += geometry.tiles;
        self.symmetric_operations += u64::from(plan.memory == MemoryClass::Symmetric);
        let operation = &mut self.operations[position];
        operation.completion.begins(plan.identity);
        operation.fingerprint = operation.fingerprint.with_plan(plan.identity);
        let (sequence, fingerprint) = (operation.sequence, operation.fingerprint);
        let bases = operation.bases.clone();
        operation.running = Some(Running {
            plan,
            geometry,
            bases,
            parts,
            first,
            next: 0,
            tiles: Vec::with_capacity(connections.layout.slots),
            puts: Puts::default(),
            strips: Strips::default(),
        });
        self.order().settle(sequence, fingerprint);
        Ok(true)
    }

    /// Whether an earlier operation is in the same lane, or is on the calling-thread path and may
    /// still need the lane.
    fn has_predecessor(&self, sequence: u64, lane: usize) -> bool {
        let before = |(other, its_lane): (u64, usize)| other < sequence && its_lane == lane;
        let path = self.calling_thread.as_ref();
        let here = path.and_then(|path| path.undecided());
        let queued = self.operations.iter().filter(|operation| {
            let inline = operation.inline.as_ref();
            inline.is_none_or(|(entered, _)| entered.is_undecided())
        });
        here.into_iter()
            .chain(queued.map(|operation| (operation.sequence, operation.lane())))
            .any(before)
    }

    /// Prevents further operations on the calling-thread path. Returns the number of operations
    /// that have been issued.
    pub(crate) fn end_issue(&self) -> u64 {
        if let Some(path) = &self.calling_thread {
            path.end();
        }
        self.order().issued()
    }

    /// Ends the operations from this number on with an error.
    pub(crate) fn fail_from(
        &mut self,
        limit: u64,
        connections: &Connections,
        error: &Error,
        finished: &mut Finished,
    ) {
        // Operations are in the order of their numbers.
        let first = self.operations.partition_point(|op| op.sequence < limit);
        for operation in self.operations.drain(first..) {
            operation.cancel(&connections.links);
            finished.push((operation.completion.clone(), Err(error.clone())));
        }
    }

    /// The number of operations that ran on symmetric memory.
    pub(crate) fn symmetric_operations(&self) -> u64 {
        let path = self.calling_thread.as_ref();
        self.symmetric_operations + path.map_or(0, |path| path.symmetric_operations())
    }
}

/// A multiplied copy of the input for a premultiplied reduction whose schedule only reads it. Other
/// reductions multiply in their output, tile by tile.
fn scaled_input(call: &Call, rank: u32, ranks: u32) -> Option<OperationMemory> {
    let Op::PremulSum(factor) = call.op else {
        return None;
    };
    let reads_only = call.collective.reduces() && !call.copies_input(rank);
    // SAFETY: see [Note: Memory access]: this only reads the caller's input.
    reads_only.then(|| OperationMemory::Scaled(unsafe { access::scaled(call, ranks, factor) }))
}
