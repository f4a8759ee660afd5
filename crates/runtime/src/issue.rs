//! Issuing: from a call to operations under way.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use weft_kernels::DType;
use weft_schedule::Collective;

use crate::call::{Counts, Op};
use crate::execute::Bases;
use crate::group::{Group, closed};
use crate::group_state::GroupState;
use crate::inline::{Attempt, Entered, Outcome};
use crate::mailbox::Due;
use crate::memory;
use crate::operation::{Agreement, Keep, Keys, Operation};
use crate::policy::Tiling;
use crate::work::{Completion, Work};
use crate::{Call, Error};

impl Group {
    /// Starts a collective operation.
    ///
    /// With `background`, the progress thread is woken to drive it; without, the caller is about to wait for it. Errors that depend on
    /// this rank's arguments alone are returned at once, all others by [`Work::wait`].
    ///
    /// # Safety
    /// Until the operation is over, `call.input` stays readable and unchanged and `call.output` stays writable, for the sizes
    /// that `call.collective` and `call.counts` say, and nobody else touches `call.output`.
    pub unsafe fn issue(&self, call: Call, background: bool) -> Result<Work, Error> {
        self.check_usable()?;
        call.check(self.size())?;
        let call = call.for_schedules(self.rank);
        if !background && let Some(inline) = &self.inline {
            match inline.attempt(&call, self.engine.patience()) {
                Attempt::Done => return Ok(self.work(self.done.clone())),
                Attempt::Entered(entered) => return self.resume(call, entered),
                Attempt::NotNow => {}
            }
        }
        let order = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let (call, keys) = self.plan(call)?;
        let completion = Completion::new();
        self.engine
            .with(|state, _| match state.groups.get_mut(&self.id) {
                Some(group) => group.enqueue(call, keys, completion.clone()),
                None => Err(closed()),
            })?;
        drop(order);
        if background {
            self.engine.hand_over();
        }
        Ok(self.work(completion))
    }

    fn work(&self, completion: Arc<Completion>) -> Work {
        let engine = self.engine.clone();
        Work { completion, engine }
    }

    /// Hands the engine an operation that got stuck on the calling thread.
    fn resume(&self, call: Call, entered: Entered) -> Result<Work, Error> {
        let completion = Completion::new();
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            if let Some(error) = &group.broken {
                return Err(error.clone());
            }
            let (keys, _) = group.plans_for(&call)?;
            let ready = Ready::inline(&call, keys, entered);
            group.push(call, completion.clone(), ready);
            Ok(())
        })?;
        Ok(self.work(completion))
    }

    /// A rank that cannot take part in a call would keep the others waiting: the group is broken.
    fn give_up(&self, error: &Error) {
        self.engine.with(|state, finished| {
            if let Some(group) = state.groups.get_mut(&self.id) {
                group.fail_and_tell(error, finished);
            }
        });
    }

    /// Chooses and compiles what a call may need, and connects to everybody it involves. Returns the call with the algorithm's name as
    /// the catalog has it, however it was spelt.
    fn plan(&self, mut call: Call) -> Result<(Call, Keys), Error> {
        let (keys, unconnected) = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            if let Some(error) = &group.broken {
                return Err(error.clone());
            }
            if let Some(name) = &mut call.algorithm {
                let collective = call.collective.name();
                let catalog = &mut group.chooser.catalog;
                let way = catalog.way(collective, name, Tiling::default())?;
                name.clone_from(&catalog.at(way).name);
            }
            group.plans_for(&call)
        })?;
        if !unconnected.is_empty() {
            let deadline = Due::within(call.timeout.unwrap_or(self.options.timeout)).deadline;
            for peer in unconnected {
                self.connect(peer, deadline, &self.cancel)
                    .inspect_err(|error| self.give_up(error))?;
            }
        }
        Ok((call, keys))
    }
}

/// What a call has been given on its way to becoming an operation.
struct Ready {
    keys: Keys,
    bases: Bases,
    agreement: Option<Arc<Agreement>>,
    keep: Option<Keep>,
    entered: Option<Entered>,
}

impl Ready {
    /// For a call on the latency path, or that was there and needs a lane after all: then its memory is not symmetric.
    fn inline(call: &Call, keys: Keys, entered: Entered) -> Self {
        let keys = Keys {
            symmetric: None,
            ..keys
        };
        Ready {
            entered: Some(entered),
            ..Ready::new(call, keys)
        }
    }

    /// For a call on memory that its rank alone reaches.
    fn new(call: &Call, keys: Keys) -> Self {
        Ready {
            keys,
            bases: Bases::own(call),
            agreement: None,
            keep: None,
            entered: None,
        }
    }
}

impl GroupState {
    /// The plans that a call may run by, and the ranks that it involves and that there is no channel to yet.
    fn plans_for(&mut self, call: &Call) -> Result<(Keys, Vec<u32>), Error> {
        let ordinary = self.chooser.choose(call, false);
        let keys = match self.may_be_symmetric(call) {
            true => Keys {
                ordinary: ordinary.ok(),
                symmetric: Some(self.chooser.choose(call, true)?),
            },
            false => Keys {
                ordinary: Some(ordinary?),
                symmetric: None,
            },
        };
        let mut involved = self.inline_peers(call);
        for key in keys.ordinary.into_iter().chain(keys.symmetric) {
            involved.extend(&self.plan(key, call)?.neighbours);
        }
        if self.needs_agreement(call) {
            let agreement = agreement_call(std::ptr::null_mut(), call);
            let key = self.chooser.choose_agreement(&agreement)?;
            involved.extend(&self.plan(key, &agreement)?.neighbours);
            involved.extend(self.inline_peers(&agreement));
        }
        involved.retain(|rank| self.channels[*rank as usize].is_none());
        involved.sort_unstable();
        involved.dedup();
        Ok((keys, involved))
    }

    /// Adds a call to the operations under way, behind the agreement that it may need.
    fn enqueue(
        &mut self,
        mut call: Call,
        keys: Keys,
        completion: Arc<Completion>,
    ) -> Result<(), Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if let Some(entered) = self.enter_inline(&call) {
            let ready = Ready::inline(&call, keys, entered);
            self.push(call, completion, ready);
            return Ok(());
        }
        let scaled = scaled_input(&call, self.rank, self.size());
        if let Some(Keep::Scaled(copy)) = &scaled {
            call.input = copy.as_ptr();
            call = call.for_schedules(self.rank);
        }
        let symmetric = keys.symmetric.and_then(|_| self.symmetric_bases(&call));
        let agreement = match self.needs_agreement(&call) {
            true => Some(
                self.enqueue_agreement(&call, symmetric.as_ref().map_or(0, |(value, _)| *value))?,
            ),
            false => None,
        };
        let bases = match symmetric {
            Some((_, bases)) => bases,
            None => Bases::own(&call),
        };
        let ready = Ready {
            keys,
            bases,
            agreement,
            keep: scaled,
            entered: None,
        };
        self.push(call, completion, ready);
        Ok(())
    }

    /// Whom a call on the latency path involves: everybody, as the ranks keep in step. Lowers what the call may run by.
    fn inline_peers(&mut self, call: &Call) -> Vec<u32> {
        let Some(inline) = &self.inline else {
            return Vec::new();
        };
        inline.prepare(call, &mut self.chooser);
        let ranks = inline.choose(call).map_or(0, |_| self.size());
        (0..ranks).filter(|rank| *rank != self.rank).collect()
    }

    /// Enters a call that runs on the latency path.
    fn enter_inline(&self, call: &Call) -> Option<Entered> {
        let inline = self.inline.as_ref()?;
        Some(inline.enter(call, inline.choose(call)?))
    }

    fn enqueue_agreement(&mut self, call: &Call, symmetric: u64) -> Result<Arc<Agreement>, Error> {
        let value = match &call.counts {
            Counts::Equal(_) => symmetric,
            Counts::PerRank(list) => list.iter().copied().max().unwrap_or(0),
            Counts::PerPair { send, receive } => {
                send.iter().chain(receive).copied().max().unwrap_or(0)
            }
        };
        let completion = Completion::new();
        let agreement = Agreement::new(value, completion.clone());
        let small = agreement_call(agreement.memory(), call);
        let keys = Keys {
            ordinary: Some(self.chooser.choose_agreement(&small)?),
            symmetric: None,
        };
        let ready = Ready {
            keep: Some(Keep::Agreement(agreement.clone())),
            entered: self.enter_inline(&small),
            ..Ready::new(&small, keys)
        };
        self.push(small, completion, ready);
        Ok(agreement)
    }

    fn push(&mut self, call: Call, completion: Arc<Completion>, ready: Ready) {
        let now = Instant::now();
        let (sequence, fingerprint) = match &ready.entered {
            Some(entered) => (entered.sequence, entered.fingerprint),
            None => self.order().enter(&call, 0),
        };
        let inline = ready
            .entered
            .filter(|entered| entered.outcome != Some(Outcome::Lane));
        // What began on a calling thread comes late.
        let behind = |operation: &&Operation| operation.sequence > sequence;
        let position =
            self.operations.len() - self.operations.iter().rev().take_while(behind).count();
        let operation = Operation {
            sequence,
            completion,
            due: Due::within(call.timeout.unwrap_or(self.timeout)),
            call,
            fingerprint,
            inline,
            keys: ready.keys,
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
        if let (Some(inline), Some(entered)) = (&self.inline, &ready.entered) {
            inline.handed_over(entered);
        }
    }
}

/// The input, multiplied, of a premultiplied reduction whose schedule only reads it. The others multiply in their output,
/// tile by tile.
fn scaled_input(call: &Call, rank: u32, ranks: u32) -> Option<Keep> {
    let Op::PremulSum(factor) = call.op else {
        return None;
    };
    let reads_only = match call.collective {
        Collective::ReduceScatter => true,
        Collective::Reduce { root } => root != rank,
        _ => false,
    };
    reads_only.then(|| Keep::Scaled(memory::scaled(call, ranks, factor)))
}

/// The small all-reduce that settles what only single ranks know. See [Note: Agreement] in `operation.rs`.
fn agreement_call(memory: *mut u8, call: &Call) -> Call {
    Call {
        collective: Collective::AllReduce,
        dtype: DType::U64,
        op: Op::Max,
        input: memory,
        output: memory,
        counts: Counts::Equal(2),
        priority: call.priority,
        timeout: call.timeout,
        algorithm: None,
        tiling: Tiling::default(),
    }
}
