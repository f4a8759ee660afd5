//! What the engine keeps about one group.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_transport::{EndpointId, Link, LinkError, RegionKey, Segment};

use crate::call::knows_all_counts;
use crate::channel::{LANES, Layout, SLOTS};
use crate::choice::Chooser;
use crate::endpoint::Endpoint;
use crate::inline::Inline;
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::operation::Operation;
use crate::order::Order;
use crate::plan::{Plan, PlanKey};
use crate::pool::PoolRange;
use crate::rendezvous::Meeting;
use crate::symmetric::Pieces;
use crate::work::Completion;
use crate::{Call, Counts, Error};

/// The tiles of a lane, counted over all operations that ran in it.
#[derive(Default, Debug)]
pub(crate) struct Lane {
    /// The number of tiles given to operations so far.
    pub(crate) assigned: u64,
    /// All tiles below this have ended here.
    pub(crate) ended: u64,
}

/// The memory that this rank and one peer have granted each other. See `channel.rs`.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The part of this rank's pool that the peer writes to.
    pub(crate) local: PoolRange,
    /// Where what this rank writes there lies before, if the link needs registered memory: laid out as the peer's channel.
    pub(crate) staging: Option<PoolRange>,
    /// Where this rank writes in the peer's pool, once granted.
    pub(crate) remote: Option<Remote>,
    /// For each slot: one more than the last tile for which this rank put something there.
    pub(crate) landed: [[u64; SLOTS]; LANES],
}

/// Offsets in a peer's pool.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) channel: u64,
    pub(crate) scratch: u64,
    /// The pool, where it is mapped.
    pub(crate) pool: Option<Arc<Segment>>,
}

/// A group, as the engine sees it.
pub(crate) struct GroupState {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) rank: u32,
    pub(crate) meeting: Meeting,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) links: Vec<Option<Arc<dyn Link>>>,
    pub(crate) channels: Vec<Option<Channel>>,
    pub(crate) scratch: PoolRange,
    pub(crate) chooser: Chooser,
    pub(crate) plans: HashMap<PlanKey, Arc<Plan>>,
    pub(crate) lanes: [Lane; LANES],
    pub(crate) operations: VecDeque<Operation>,
    pub(crate) order: Arc<Mutex<Order>>,
    /// The latency path, where all ranks map each other's memory.
    pub(crate) inline: Option<Arc<Inline>>,
    pub(crate) mailbox: Mailbox,
    pub(crate) symmetric: Arc<Pieces>,
    /// How many operations ran in lanes by a plan for symmetric memory.
    pub(crate) symmetric_operations: u64,
    /// How many steps of other ranks this one has executed.
    pub(crate) steps_helped: u64,
    /// Over unless its creation waits for the control neighbours. See `joining.rs`.
    pub(crate) joined: Arc<Completion>,
    pub(crate) broken: Option<Error>,
    /// Ranks that have left the group, said goodbye, or are gone.
    pub(crate) left: Vec<bool>,
    /// Set when this rank has closed the group; ranges are freed as peers detach.
    pub(crate) closed: bool,
}

impl GroupState {
    pub(crate) fn size(&self) -> u32 {
        self.meeting.members.len() as u32
    }

    pub(crate) fn host_name(&self, rank: u32) -> &str {
        &self.meeting.members[rank as usize].address.host_name
    }

    /// "rank 3 on host-b", for messages.
    pub(crate) fn describe(&self, rank: u32) -> String {
        format!("rank {rank} on {}", self.host_name(rank))
    }

    /// The rank of an endpoint in this group.
    pub(crate) fn rank_of(&self, endpoint: EndpointId) -> Option<u32> {
        let found = self
            .meeting
            .members
            .iter()
            .position(|m| m.address.id == endpoint);
        found.map(|rank| rank as u32)
    }

    /// Whether there are a link and a channel to a rank.
    pub(crate) fn is_linked(&self, rank: u32) -> bool {
        self.links[rank as usize].is_some() && self.channels[rank as usize].is_some()
    }

    /// Whether this rank reaches a peer's pool with loads and stores.
    pub(crate) fn maps(&self, rank: u32) -> bool {
        self.meeting.maps(self.rank, rank)
    }

    /// Whether ranks must first agree on something that only one of them knows: see `operation.rs`.
    pub(crate) fn needs_agreement(&mut self, call: &Call) -> bool {
        if self.size() == 1 {
            return false;
        }
        match &call.counts {
            Counts::PerPair { .. } => true,
            Counts::PerRank(_) => !knows_all_counts(call.collective),
            Counts::Equal(_) => self.may_be_symmetric(call),
        }
    }

    /// Whether symmetric memory would make a difference to the call.
    pub(crate) fn may_be_symmetric(&mut self, call: &Call) -> bool {
        matches!(call.counts, Counts::Equal(_))
            && self.symmetric.made()
            && self.chooser.gains_from_symmetric_memory(call)
    }

    /// The operations whose turn has come: the first of each lane, and the first of those that run inline.
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

    /// The plan for a key, compiled at most once.
    pub(crate) fn plan(&mut self, key: PlanKey, call: &Call) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = self.plans.get(&key) {
            return Ok(plan.clone());
        }
        let maps = |rank| self.maps(rank);
        let way = self.chooser.catalog.at(key.way);
        let site = &self.chooser.site;
        let schedule = way.schedule(site, call.collective, key.symmetric, key.per_rank)?;
        let plan = Arc::new(Plan::compile(schedule, way, &maps)?);
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }

    /// The operations in the order of their calls.
    pub(crate) fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that there is a channel to a peer over this link, and grants it.
    pub(crate) fn open_channel(
        &mut self,
        endpoint: &Endpoint,
        rank: u32,
        link: &Arc<dyn Link>,
    ) -> Result<(), Error> {
        let peer = rank as usize;
        if self.links[peer].is_none() {
            self.links[peer] = Some(link.clone());
        }
        if self.channels[peer].is_some() {
            return Ok(());
        }
        let allocate = || endpoint.pool().allocate(self.layout.channel_bytes(), 4096);
        let local = allocate()?;
        let staging = match link.capabilities().needs_registration {
            true => Some(allocate()?),
            false => None,
        };
        let granted = link.grant(RegionKey::POOL, local.range());
        let grant = Message::Grant {
            group: self.id,
            channel: local.offset,
            scratch: self.scratch.offset,
        };
        self.channels[peer] = Some(Channel {
            local,
            staging,
            remote: None,
            landed: Default::default(),
        });
        let told = granted.and_then(|()| link.message(&grant.encode()));
        told.map_err(|error| Error::from_link(error, Some(rank), self.host_name(rank)))
    }

    /// Takes note of what a peer has granted. An offset outside its pool is a breach of the protocol.
    pub(crate) fn granted(
        &mut self,
        rank: u32,
        channel_at: u64,
        scratch: u64,
    ) -> Result<(), LinkError> {
        let peer = rank as usize;
        let (Some(link), Some(channel)) = (&self.links[peer], &mut self.channels[peer]) else {
            return Err(LinkError::Protocol("a grant without a channel".into()));
        };
        let pool = link.memory(RegionKey::POOL);
        if let Some(pool) = &pool {
            let fits = |start: u64, bytes: u64| {
                start.is_multiple_of(64)
                    && start
                        .checked_add(bytes)
                        .is_some_and(|end| end <= pool.len())
            };
            if !fits(channel_at, self.layout.channel_bytes())
                || !fits(scratch, self.layout.scratch_total())
            {
                return Err(LinkError::Protocol("a grant outside of the pool".into()));
            }
        }
        channel.remote = Some(Remote {
            channel: channel_at,
            scratch,
            pool,
        });
        if let Some(inline) = &self.inline {
            inline.connect(self);
        }
        Ok(())
    }

    /// Ends everything under way with an error. A group that is broken stays broken, for the first reason.
    pub(crate) fn fail(&mut self, error: &Error, finished: &mut crate::engine::Finished) {
        if self.broken.is_none() {
            self.broken = Some(error.clone());
        }
        if let Some(inline) = &self.inline {
            inline.end();
        }
        for operation in self.operations.drain(..) {
            operation.cancel(&self.links);
            finished.push((operation.completion.clone(), Err(error.clone())));
        }
        self.mailbox.fail(&self.links, error, finished);
    }

    /// As [`GroupState::fail`], and tells all members that can be told.
    pub(crate) fn fail_and_tell(&mut self, error: &Error, finished: &mut crate::engine::Finished) {
        if self.broken.is_some() {
            return;
        }
        self.tell_all(&Message::Broken {
            group: self.id,
            error: error.told_by(self.rank),
        });
        self.fail(error, finished);
    }

    /// Another rank says that the group is broken: passes it on as it is.
    pub(crate) fn told_broken(&mut self, error: Error, finished: &mut crate::engine::Finished) {
        if self.broken.is_some() {
            return;
        }
        let (group, error) = (self.id, &error);
        self.tell_all(&Message::Broken {
            group,
            error: error.clone(),
        });
        self.fail(error, finished);
    }

    /// Sends a message to all members that there are links to.
    pub(crate) fn tell_all(&self, message: &Message) {
        let bytes = message.encode();
        for link in self.links.iter().flatten() {
            // A link that fails is noticed when it is read.
            let _ = link.message(&bytes);
        }
    }

    /// The earliest deadline of anything under way.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let operations = self
            .operations
            .iter()
            .map(|operation| operation.due.deadline);
        operations.chain(self.mailbox.deadlines()).min()
    }

    /// The number of things under way.
    pub(crate) fn pending(&self) -> usize {
        self.operations.len() + self.mailbox.pending()
    }
}
