//! The progress engine's state of one group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_call::{Call, Completion, Finished};
use weft_channel::{Connections, GrantedPart, OneSidedWord, control_neighbours};
use weft_flight::{FlightRecorder, GroupFlight, GroupInfo};
use weft_memory::Pool;
use weft_transport::{LinkError, Presence};

use super::group_name::GroupName;
use super::split_calls::Splits;
use super::suspicion::SuspectedDesync;
use super::wait_causes::WaitCauses;
use super::wind_down::WindDown;
use crate::Error;
use crate::execution::{CallingThread, Entered, Executor, GroupFailure};
use crate::one_sided::OneSided;
use crate::point_to_point::MessageMatching;
use crate::selection::{Decision, Selector};

/// Up to this size in bytes, a thread polls for the peers of an operation even over a network.
const SHORT_BYTES: u64 = 64 << 10;

/// A group's state in the engine.
pub(crate) struct GroupState {
    pub(crate) id: u64,
    pub(crate) name: GroupName,
    pub(crate) connections: Connections,
    pub(crate) selector: Selector,
    pub(crate) executor: Executor,
    pub(crate) matching: MessageMatching,
    pub(crate) one_sided: OneSided,
    pub(crate) flight: GroupFlight,
    /// Pending while the group's creation waits for control neighbours. See `group/joining.rs`.
    pub(crate) joined: Arc<Completion>,
    pub(crate) broken: Option<Error>,
    /// Ends with the error when the group breaks, or when this rank closes it.
    pub(crate) end: Arc<Completion>,
    /// Progress of a broken group towards its end.
    pub(super) wind_down: WindDown,
    /// Set while the group pauses to find different calls.
    pub(crate) suspicion: Option<SuspectedDesync>,
    /// See `wait_chain.rs`.
    pub(super) wait_causes: WaitCauses,
    /// Calls that split groups off this one.
    pub(crate) splits: Splits,
    /// Set once this rank has closed the group. Memory ranges are freed as peers detach.
    pub(crate) closed: bool,
}

/// The outcome of issuing a call.
pub(crate) enum Issued {
    /// The call is enqueued.
    Enqueued,
    /// These ranks must be connected first.
    Unconnected(Call, Vec<u32>),
}

impl GroupState {
    pub(crate) fn new(
        name: GroupName,
        connections: Connections,
        selector: Selector,
        timeout: Duration,
        (pool, recorder): (&Pool, &Arc<FlightRecorder>),
    ) -> Self {
        let info = GroupInfo {
            id: connections.group,
            name: name.text().into(),
            rank: connections.rank,
            global_ranks: (0..connections.size())
                .map(|rank| name.rank(rank))
                .collect(),
            timeout,
        };
        let flight = GroupFlight::new(recorder, info);
        let one_sided = OneSided::new(connections.group, connections.rank, connections.size());
        let mut executor = Executor::new(timeout, connections.size(), flight.clone());
        executor.calling_thread = selector.calling_thread.clone().map(|programs| {
            let (order, pieces) = (executor.order.clone(), executor.symmetric.clone());
            CallingThread::new(
                &connections,
                programs,
                pool.segment().clone(),
                order,
                pieces,
                flight.clone(),
            )
        });
        GroupState {
            id: connections.group,
            name,
            connections,
            selector,
            executor,
            matching: MessageMatching::default(),
            one_sided,
            flight,
            joined: Completion::done(),
            broken: None,
            end: Completion::new(),
            wind_down: WindDown::default(),
            suspicion: None,
            wait_causes: WaitCauses::default(),
            splits: Splits::default(),
            closed: false,
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.connections.size()
    }

    /// Returns the group's error if it is broken.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Selects the plan of a call, and enqueues it.
    pub(crate) fn issue(
        &mut self,
        call: Call,
        completion: &Arc<Completion>,
    ) -> Result<Issued, Error> {
        self.check()?;
        let (call, decision) = self.decide(call)?;
        let unconnected = self.unconnected(&call, &decision);
        if !unconnected.is_empty() {
            return Ok(Issued::Unconnected(call, unconnected));
        }
        self.executor
            .enqueue(&self.connections, call, decision, completion.clone());
        Ok(Issued::Enqueued)
    }

    /// Continues a call that blocked on the calling thread.
    pub(crate) fn resume(
        &mut self,
        call: Call,
        completion: Arc<Completion>,
        entered: Entered,
        finished: &mut Finished,
    ) -> Result<(), Error> {
        self.check_continues(entered.sequence, finished)?;
        let (call, decision) = self.decide(call)?;
        self.executor.resume(call, decision, completion, entered);
        Ok(())
    }

    /// Selects the plan of a call. Returns the call with its algorithm's name in the catalog's
    /// spelling.
    fn decide(&mut self, mut call: Call) -> Result<(Call, Arc<Decision>), Error> {
        if let Some(name) = &mut call.algorithm {
            self.selector.normalize_name(call.collective, name)?;
        }
        let decision = (self.selector).decide(&call, self.executor.symmetric.made())?;
        for (collective, plan, name) in self.selector.new_plans() {
            self.flight.name_plan(collective, plan, &name);
        }
        Ok((call, decision))
    }

    /// The ranks that a call involves and that have no channel yet. A call on the calling-thread
    /// path involves all ranks, since they advance in step.
    fn unconnected(&self, call: &Call, decision: &Decision) -> Vec<u32> {
        let missing = |rank: &u32| self.connections.channels[*rank as usize].is_none();
        if self
            .executor
            .calling_thread
            .as_ref()
            .is_some_and(|path| path.takes(call, decision))
        {
            let others = (0..self.size()).filter(|rank| *rank != self.connections.rank);
            return others.filter(missing).collect();
        }
        let plans = decision.plans();
        let mut involved: Vec<u32> = plans
            .flat_map(|plan| plan.program.neighbours.iter().copied())
            .filter(missing)
            .collect();
        involved.sort_unstable();
        involved.dedup();
        involved
    }

    /// Records the memory that a peer has granted. An offset outside its pool violates the
    /// protocol.
    pub(crate) fn granted(&mut self, rank: u32, parts: &[GrantedPart]) -> Result<(), LinkError> {
        self.connections.granted(rank, parts)?;
        if let Some(path) = &self.executor.calling_thread {
            path.connect(&self.connections);
        }
        Ok(())
    }

    /// Handles a one-sided message of a rank. A broken group ignores it.
    pub(crate) fn on_one_sided_message(
        &mut self,
        rank: u32,
        word: OneSidedWord,
        payload: &[u8],
        finished: &mut Finished,
    ) -> Result<(), GroupFailure> {
        if self.broken.is_some() {
            return Ok(());
        }
        let pieces = &self.executor.symmetric;
        (self.one_sided)
            .on_message((pieces, rank), word, payload, finished)
            .map_err(|error| GroupFailure::Link(rank, error))
    }

    /// Advances one-sided operations as far as possible.
    pub(crate) fn advance_one_sided(
        &mut self,
        finished: &mut Finished,
    ) -> Result<bool, GroupFailure> {
        (self.one_sided)
            .advance(&self.connections, finished)
            .map_err(|(rank, error)| GroupFailure::Link(rank, error))
    }

    /// A rank that has left although an operation waits for it. Where any rank could send the
    /// awaited signal, the last one, once all have left.
    pub(super) fn awaited_departed_rank(&self) -> Option<u32> {
        let left = |rank: &u32| self.connections.departed[*rank as usize];
        let needed = |rank: &u32| self.matching.needs(*rank) || self.one_sided.needs(*rank);
        let mut ranks = 0..self.size();
        if let Some(rank) = ranks.find(|rank| left(rank) && needed(rank)) {
            return Some(rank);
        }
        let mut others = (0..self.size()).filter(|rank| *rank != self.connections.rank);
        let alone = self.one_sided.waits() && others.clone().all(|rank| left(&rank));
        if alone { others.next_back() } else { None }
    }

    /// The earliest deadline of all operations and messages.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let operations = self.executor.operations.iter();
        let operations = operations.map(|operation| operation.due.deadline);
        let messages = self.matching.deadlines();
        let others = messages.chain(self.one_sided.deadlines());
        operations.chain(others).min()
    }

    /// The presence of the peers that operations wait for. Long transfers over a network are not
    /// worth polling for.
    pub(super) fn awaited_peers(&self) -> impl Iterator<Item = Presence> {
        let operations = self.executor.front().filter_map(|operation| {
            let blocked = operation.blocked()?;
            let bytes = operation.call.message_bytes(self.size());
            Some((blocked.rank(), bytes <= SHORT_BYTES))
        });
        let messages = self.matching.awaited().map(|rank| (rank, true));
        let fragments = self.matching.busy().into_iter().map(|rank| (rank, false));
        let cells = self.one_sided.awaited().flat_map(|rank| {
            let any = if rank.is_none() { self.size() } else { 0 };
            rank.into_iter().chain(0..any).map(|rank| (rank, true))
        });
        let awaited = operations.chain(messages).chain(fragments).chain(cells);
        awaited.filter_map(|(rank, short)| {
            let presence = self.connections.links[rank as usize].as_ref()?.presence();
            Some(match presence {
                Presence::Unknown { .. } if !short => Presence::Unknown {
                    round_trip: Duration::ZERO,
                },
                presence => presence,
            })
        })
    }

    /// "rank 3 on host-b", for messages.
    pub(super) fn describe(&self, rank: u32) -> String {
        let host = self.connections.host_name(rank);
        format!("rank {} on {host}", self.name.rank(rank))
    }

    /// "rank 3 on host-b, rank 5 on host-c"
    pub(crate) fn describe_all(&self, ranks: impl Iterator<Item = u32>) -> String {
        let names: Vec<String> = ranks.map(|rank| self.describe(rank)).collect();
        names.join(", ")
    }

    /// The number of unfinished operations and messages.
    pub(crate) fn pending(&self) -> usize {
        let others = self.matching.pending() + self.one_sided.pending();
        self.executor.operations.len() + others
    }

    /// An operation that must end before this rank may leave in order.
    pub(crate) fn unfinished(&self) -> Option<Arc<Completion>> {
        let operations = self.executor.operations.iter();
        let mut collectives = operations.map(|operation| &operation.completion);
        let next = collectives.next().or_else(|| self.matching.unfinished());
        next.or_else(|| self.one_sided.unfinished()).cloned()
    }

    /// The control neighbours that have not made the group yet.
    fn missing(&self) -> impl Iterator<Item = u32> {
        let neighbours = control_neighbours(self.connections.rank, self.size()).into_iter();
        neighbours.filter(|peer| self.connections.remote(*peer).is_none())
    }

    /// The same, for messages.
    pub(crate) fn late_ranks(&self) -> String {
        self.describe_all(self.missing())
    }

    /// The result of waiting for the neighbours; `None` while they may still join.
    pub(super) fn neighbours_have_joined(&self) -> Option<Result<(), Error>> {
        let mut missing = self.missing().peekable();
        if missing.peek().is_none() {
            return Some(Ok(()));
        }
        if let Some(error) = &self.broken {
            return Some(Err(error.clone()));
        }
        let left = missing.find(|rank| self.connections.departed[*rank as usize])?;
        Some(Err(Error::from_link(
            LinkError::Left,
            Some(left),
            self.connections.host_name(left),
        )))
    }
}
