//! Counters of a group's operations, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_call::Call;
use weft_flight::OneSidedKind;
use weft_schedule::Collective;

use super::Work;

/// The kinds of operation: the collectives, messages, and one-sided operations.
const KINDS: usize = ONE_SIDED + OneSidedKind::ALL.len();
const SEND: usize = Collective::NAMES.len();
const RECEIVE: usize = SEND + 1;
const ONE_SIDED: usize = RECEIVE + 1;

/// The counters of a group, from their first use on: see [`Group::counters`].
#[derive(Default, Debug)]
pub struct Counters {
    kinds: [KindCounters; KINDS],
    in_flight: AtomicU64,
}

#[derive(Default, Debug)]
struct KindCounters {
    calls: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

/// Totals of the operations of one kind that have ended, with or without an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationTotals {
    /// The collective's name, `send`, `receive`, `put`, `get`, `signal`, `atomic`, `wait-signal` or
    /// `quiet`.
    pub operation: &'static str,
    /// The number of operations.
    pub calls: u64,
    /// The bytes of their messages, all blocks together.
    pub bytes: u64,
    /// The time from call to end, in nanoseconds.
    pub nanoseconds: u64,
}

impl Counters {
    /// The totals of all kinds with at least one operation.
    pub fn totals(&self) -> impl Iterator<Item = OperationTotals> {
        let one_sided = OneSidedKind::ALL.map(OneSidedKind::name);
        let names = Collective::NAMES.into_iter().chain(["send", "receive"]);
        let names = names.chain(one_sided);
        let totals = names.zip(&self.kinds).map(|(operation, counters)| {
            let [calls, bytes, nanoseconds] =
                [&counters.calls, &counters.bytes, &counters.nanoseconds]
                    .map(|counter| counter.load(Ordering::Relaxed));
            OperationTotals {
                operation,
                calls,
                bytes,
                nanoseconds,
            }
        });
        totals.filter(|totals| totals.calls > 0)
    }

    /// The number of operations that have not ended, without those that a calling thread executes.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn collective(self: &Arc<Self>, call: &Call, ranks: u32) -> Timer<'_> {
        let bytes = call.message_bytes(ranks);
        self.timer(usize::from(call.collective.index()), bytes)
    }

    pub(super) fn send(self: &Arc<Self>, bytes: u64) -> Timer<'_> {
        self.timer(SEND, bytes)
    }

    pub(super) fn receive(self: &Arc<Self>, bytes: u64) -> Timer<'_> {
        self.timer(RECEIVE, bytes)
    }

    pub(super) fn one_sided(self: &Arc<Self>, kind: OneSidedKind, bytes: u64) -> Timer<'_> {
        self.timer(ONE_SIDED + kind as usize, bytes)
    }

    fn timer(self: &Arc<Self>, kind: usize, bytes: u64) -> Timer<'_> {
        Timer {
            counters: self,
            kind,
            bytes,
            started: Instant::now(),
        }
    }

    fn ended(&self, kind: usize, bytes: u64, started: Instant) {
        let counters = &self.kinds[kind];
        let nanoseconds = started.elapsed().as_nanos() as u64;
        counters.calls.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        counters
            .nanoseconds
            .fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// An operation that is counted when it ends.
pub(super) struct Timer<'a> {
    counters: &'a Arc<Counters>,
    kind: usize,
    bytes: u64,
    started: Instant,
}

impl Timer<'_> {
    pub(super) fn follow(&self, work: &Work) {
        let Timer {
            kind,
            bytes,
            started,
            ..
        } = *self;
        if work.is_done() {
            return self.counters.ended(kind, bytes, started);
        }
        let counters = self.counters.clone();
        counters.in_flight.fetch_add(1, Ordering::Relaxed);
        work.completion.count_with(Box::new(move || {
            counters.in_flight.fetch_sub(1, Ordering::Relaxed);
            counters.ended(kind, bytes, started);
        }));
    }
}
