//! Groups: what users call.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_kernels::DType;
use weft_schedule::Collective;
use weft_transport::{Kind, Segment, fork};

use crate::call::{Counts, Fingerprint, Op};
use crate::channel::Layout;
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::execute::Bases;
use crate::group_state::GroupState;
use crate::mailbox::{EAGER_BYTES, Mailbox, Posted, Source, Target};
use crate::memory;
use crate::message::Message;
use crate::operation::{Agreement, Keys, Operation};
use crate::plan::choose;
use crate::rendezvous::{Meeting, meet};
use crate::store::Store;
use crate::symmetric::{Shared, Symmetric};
use crate::work::{Completion, Work};
use crate::{Call, Error};

/// How to make a group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// How long an operation may take, and how long making the group may take.
    pub timeout: Duration,
    /// What the group is called in messages.
    pub name: String,
}

impl Default for GroupOptions {
    fn default() -> Self {
        GroupOptions {
            timeout: Duration::from_secs(300),
            name: "world".into(),
        }
    }
}

/// A list of endpoints that communicate with each other, and this endpoint's place in it.
///
/// All ranks of a group issue its operations in the same order. Threads that cannot keep an order use groups of their own.
pub struct Group {
    engine: Arc<Engine>,
    meeting: Meeting,
    id: u64,
    rank: u32,
    options: GroupOptions,
    /// Serialises issuing, so that sequence numbers follow the order of calls.
    issuing: Mutex<()>,
    cancel: AtomicBool,
    generation: u64,
}

impl Group {
    /// Meets the other ranks through the store and makes a group with them.
    ///
    /// Every rank calls it with the same `size` and with a store that is used for this group only. Fails with [`Error::Timeout`]
    /// naming the missing ranks, with [`Error::Aborted`] once `cancel` is true, and with [`Error::Config`] where settings differ.
    pub fn create(
        endpoint: Arc<Endpoint>,
        store: &dyn Store,
        rank: u32,
        size: u32,
        options: GroupOptions,
        cancel: &AtomicBool,
    ) -> Result<Arc<Group>, Error> {
        let engine = engine_of(&endpoint)?;
        let deadline = Instant::now() + options.timeout;
        let meeting = meet(&endpoint, store, rank, size, deadline, cancel)?;
        let id = meeting.group_id;
        Self::join(engine, meeting, id, rank, options, deadline, cancel)
    }

    fn join(
        engine: Arc<Engine>,
        meeting: Meeting,
        id: u64,
        rank: u32,
        options: GroupOptions,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<Group>, Error> {
        let size = meeting.members.len();
        let here = meeting
            .members
            .iter()
            .filter(|m| m.host == meeting.members[rank as usize].host);
        engine.crowd(here.count());
        let layout = Layout::new(size as u32);
        let scratch = engine
            .endpoint()
            .pool()
            .allocate(layout.scratch_total(), 4096)?;
        let state = GroupState {
            id,
            name: options.name.clone(),
            rank,
            meeting: meeting.clone(),
            layout,
            timeout: options.timeout,
            links: vec![None; size],
            channels: (0..size).map(|_| None).collect(),
            scratch,
            plans: Default::default(),
            lanes: Default::default(),
            operations: Default::default(),
            next_sequence: 0,
            history: 0,
            remembered: Default::default(),
            mailbox: Mailbox::default(),
            symmetric: Default::default(),
            symmetric_made: 0,
            broken: None,
            left: vec![false; size],
            closed: false,
        };
        engine.with(|s, finished| s.add_group(state, finished));
        let group = Arc::new(Group {
            engine,
            meeting,
            id,
            rank,
            options,
            issuing: Mutex::new(()),
            cancel: AtomicBool::new(false),
            generation: fork::generation(),
        });
        for peer in control_neighbours(rank, size as u32) {
            group.connect(peer, deadline, cancel)?;
        }
        Ok(group)
    }

    /// Makes a group of some of this group's ranks, in the order given. `None` if this rank is not among them.
    ///
    /// Needs no communication: every member calls it with the same list and name. A list and name that was used before needs
    /// another name.
    pub fn split(
        &self,
        ranks: &[u32],
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Option<Arc<Group>>, Error> {
        self.check_usable()?;
        let size = self.size();
        if let Some(wrong) = ranks.iter().find(|rank| **rank >= size) {
            return Err(Error::Config(format!(
                "rank {wrong} is not in this group of {size} ranks"
            )));
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::Config(format!(
                "the ranks of a group must be distinct: {ranks:?}"
            )));
        }
        let Some(rank) = ranks.iter().position(|rank| *rank == self.rank) else {
            return Ok(None);
        };
        let meeting = self.meeting.of_ranks(ranks);
        let words = name
            .bytes()
            .map(u64::from)
            .chain(ranks.iter().map(|r| u64::from(*r) << 8));
        let id = words.fold(self.id, crate::call::mix);
        let timeout = timeout.unwrap_or(self.options.timeout);
        let options = GroupOptions {
            timeout,
            name: name.into(),
        };
        let deadline = Instant::now() + timeout;
        let engine = self.engine.clone();
        Self::join(
            engine,
            meeting,
            id,
            rank as u32,
            options,
            deadline,
            &self.cancel,
        )
        .map(Some)
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.meeting.members.len() as u32
    }

    /// The group's name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// How long an operation may take unless it is told otherwise.
    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// For each rank, the lowest rank that shares memory with it.
    pub fn hosts(&self) -> Vec<u32> {
        self.meeting
            .members
            .iter()
            .map(|member| member.host)
            .collect()
    }

    /// For each rank, the name of its host.
    pub fn host_names(&self) -> Vec<String> {
        self.meeting
            .members
            .iter()
            .map(|member| member.address.host_name.clone())
            .collect()
    }

    /// How this rank reaches another; nothing for itself.
    pub fn transport(&self, rank: u32) -> Option<Kind> {
        (rank != self.rank && rank < self.size()).then(|| self.meeting.kind(self.rank, rank))
    }

    /// The name of the algorithm that a call would run on ordinary memory.
    pub fn algorithm(&self, call: &Call) -> Result<&'static str, Error> {
        let key = self
            .engine
            .with(|state, _| match state.groups.get(&self.id) {
                Some(group) => choose(call, group.setting(false)),
                None => Err(closed()),
            })?;
        Ok(weft_algorithms::registry()[key.algorithm as usize].name)
    }

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
        let order = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = self.plan(&call)?;
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
        Ok(Work {
            completion,
            engine: self.engine.clone(),
        })
    }

    /// Chooses and compiles what a call may need, and connects to everybody it involves.
    fn plan(&self, call: &Call) -> Result<Keys, Error> {
        let (keys, unconnected) = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            if let Some(error) = &group.broken {
                return Err(error.clone());
            }
            group.plans_for(call)
        })?;
        if !unconnected.is_empty() {
            let deadline = Instant::now() + call.timeout.unwrap_or(self.options.timeout);
            for peer in unconnected {
                self.connect(peer, deadline, &self.cancel)?;
            }
        }
        Ok(keys)
    }

    /// Makes sure that there is a link and a channel to a rank.
    fn connect(&self, rank: u32, deadline: Instant, cancel: &AtomicBool) -> Result<(), Error> {
        let address = &self.meeting.members[rank as usize].address;
        let kind = self.meeting.kind(self.rank, rank);
        let link = self
            .engine
            .endpoint()
            .link(address, kind, deadline, cancel)
            .map_err(|error| match error {
                Error::PeerLost { host, detail, .. } => Error::PeerLost {
                    rank: Some(rank),
                    host,
                    detail,
                },
                error => error,
            });
        let link = match (link, self.broken()) {
            (Ok(link), None) => link,
            (_, Some(error)) | (Err(error), None) => return Err(error),
        };
        self.engine.with(|state, _| {
            let endpoint = state.endpoint.clone();
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.open_channel(&endpoint, rank, &link)
        })
    }

    /// Sends bytes to a rank, which receives them by the same tag.
    ///
    /// # Safety
    /// Until the operation is over, `memory` stays readable and unchanged for `bytes` bytes.
    pub unsafe fn send(
        &self,
        to: u32,
        tag: u64,
        memory: *const u8,
        bytes: u64,
        timeout: Option<Duration>,
    ) -> Result<Work, Error> {
        self.check_usable()?;
        self.check_rank("send to", to)?;
        let deadline = Instant::now() + timeout.unwrap_or(self.options.timeout);
        if to != self.rank {
            self.connect(to, deadline, &self.cancel)?;
        }
        let completion = Completion::new();
        let source = Source {
            memory,
            bytes,
            completion: completion.clone(),
            deadline,
        };
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            if let Some(error) = &group.broken {
                return Err(error.clone());
            }
            if to == self.rank {
                group
                    .mailbox
                    .whole(to, tag, memory::copy_out(&source), finished);
                finished.push((source.completion, Ok(())));
                return Ok(());
            }
            let message = if bytes <= EAGER_BYTES {
                let message = Message::Eager {
                    group: self.id,
                    tag,
                    bytes: memory::copy_out(&source),
                };
                finished.push((source.completion, Ok(())));
                message
            } else {
                let id = group.mailbox.offer(to, source);
                Message::Offer {
                    group: self.id,
                    tag,
                    id,
                    bytes,
                }
            };
            group.tell(to, &message)
        })?;
        self.engine.hand_over();
        Ok(Work {
            completion,
            engine: self.engine.clone(),
        })
    }

    /// Receives bytes from a rank, or from any, by tag. The sender must send exactly `bytes` bytes.
    ///
    /// # Safety
    /// Until the operation is over, `memory` stays writable for `bytes` bytes and nobody else touches it.
    pub unsafe fn receive(
        &self,
        from: Option<u32>,
        tag: u64,
        memory: *mut u8,
        bytes: u64,
        timeout: Option<Duration>,
    ) -> Result<Work, Error> {
        self.check_usable()?;
        if let Some(from) = from {
            self.check_rank("receive from", from)?;
        }
        let deadline = Instant::now() + timeout.unwrap_or(self.options.timeout);
        let completion = Completion::new();
        let target = Target {
            memory,
            bytes,
            completion: completion.clone(),
            deadline,
        };
        let posted = Posted { from, tag, target };
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            if let Some(error) = &group.broken {
                return Err(error.clone());
            }
            match group.mailbox.post(self.id, posted, finished) {
                Some((rank, answer)) => group.tell(rank, &answer),
                None => Ok(()),
            }
        })?;
        self.engine.hand_over();
        Ok(Work {
            completion,
            engine: self.engine.clone(),
        })
    }

    /// Makes memory that the ranks on one host map together. Every rank calls it with the same size.
    pub fn symmetric(&self, bytes: u64) -> Result<Symmetric, Error> {
        self.check_usable()?;
        let order = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + self.options.timeout;
        let segment = symmetric_segment(bytes)?;
        for peer in (0..self.size()).filter(|peer| *peer != self.rank) {
            self.connect(peer, deadline, &self.cancel)?;
        }
        let piece = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.announce_symmetric(bytes, &segment)
        })?;
        drop(order);
        self.await_symmetric(piece, bytes, deadline)?;
        Ok(Symmetric { segment, bytes })
    }

    fn await_symmetric(&self, piece: u64, bytes: u64, deadline: Instant) -> Result<(), Error> {
        loop {
            let (complete, same) = self.engine.with(|state, finished| {
                state.pass(finished);
                let group = state.groups.get(&self.id).ok_or_else(closed)?;
                if let Some(error) = &group.broken {
                    return Err(error.clone());
                }
                let shared = group.symmetric.get(&piece);
                Ok((
                    shared.is_some_and(Shared::complete),
                    shared.is_none_or(|s| s.bytes == bytes),
                ))
            })?;
            if !same {
                return Err(Error::Config(format!(
                    "symmetric memory: this rank asks for {bytes} bytes, another for a different size"
                )));
            }
            if complete {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    operation: "making symmetric memory".into(),
                    waiting_for: "the other ranks to make the same call".into(),
                    after: self.options.timeout,
                });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Ends everything under way in this group, here and on the other ranks, with [`Error::Aborted`]. From any thread.
    pub fn abort(&self, reason: &str) {
        self.cancel.store(true, Ordering::SeqCst);
        let error = Error::Aborted {
            reason: reason.into(),
        };
        self.engine.with(|state, finished| {
            if let Some(group) = state.groups.get_mut(&self.id) {
                group.fail_and_tell(&error, finished);
            }
        });
    }

    /// Why the group is broken, if it is.
    pub fn broken(&self) -> Option<Error> {
        self.engine.with(|state, _| {
            state
                .groups
                .get(&self.id)
                .and_then(|group| group.broken.clone())
        })
    }

    /// Leaves the group. What is under way here fails with [`Error::Aborted`]. Idempotent.
    pub fn close(&self) {
        if self.generation != fork::generation() {
            return;
        }
        self.cancel.store(true, Ordering::SeqCst);
        self.engine.with(|state, finished| {
            let Some(group) = state.groups.get_mut(&self.id) else {
                return;
            };
            if group.closed {
                return;
            }
            group.fail(&closed(), finished);
            group.closed = true;
            group.tell_all(&Message::Detach { group: self.id });
            let gone: Vec<u32> = (0..group.size())
                .filter(|rank| group.left[*rank as usize])
                .collect();
            for rank in gone {
                group.release_channel(rank, state.endpoint.pool());
            }
            if group.channels.iter().all(Option::is_none) {
                state.remove_group(self.id);
            }
        });
    }

    fn check_rank(&self, what: &str, rank: u32) -> Result<(), Error> {
        if rank < self.size() {
            return Ok(());
        }
        Err(Error::Config(format!(
            "{what} rank {rank}: this group has {} ranks",
            self.size()
        )))
    }

    fn check_usable(&self) -> Result<(), Error> {
        if self.generation == fork::generation() {
            return Ok(());
        }
        Err(Error::Unsupported(
            "using weft in a forked child of the process that made the group; make a new one there"
                .into(),
        ))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.close();
    }
}

impl GroupState {
    /// The plans that a call may run by, and the ranks that it involves and that there is no channel to yet.
    fn plans_for(&mut self, call: &Call) -> Result<(Keys, Vec<u32>), Error> {
        let ordinary = choose(call, self.setting(false))?;
        let symmetric = match self.may_be_symmetric(call) {
            true => Some(choose(call, self.setting(true))?),
            false => None,
        };
        let mut involved = self.plan(ordinary, call)?.neighbours.clone();
        if let Some(key) = symmetric {
            involved.extend(&self.plan(key, call)?.neighbours);
        }
        if self.needs_agreement(call) {
            let agreement = agreement_call(std::ptr::null_mut(), call);
            let key = choose(&agreement, self.setting(false))?;
            involved.extend(&self.plan(key, &agreement)?.neighbours);
        }
        involved.retain(|rank| self.channels[*rank as usize].is_none());
        involved.sort_unstable();
        involved.dedup();
        Ok(((ordinary, symmetric), involved))
    }

    /// Adds a call to the operations under way, behind the agreement that it may need.
    fn enqueue(
        &mut self,
        call: Call,
        keys: Keys,
        completion: Arc<Completion>,
    ) -> Result<(), Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let symmetric = keys.1.and_then(|_| self.symmetric_bases(&call));
        let agreement = match self.needs_agreement(&call) {
            true => Some(
                self.enqueue_agreement(&call, symmetric.as_ref().map_or(0, |(value, _)| *value))?,
            ),
            false => None,
        };
        let reads_only = matches!(call.collective, Collective::Reduce { root } if root != self.rank)
            && !matches!(call.op, Op::PremulSum(_));
        let output = if reads_only {
            call.input.cast_mut()
        } else {
            call.output
        };
        let bases = match symmetric {
            Some((_, bases)) => bases,
            None => Bases {
                input: call.input,
                output,
                peers: None,
            },
        };
        self.push(call, keys, completion, bases, agreement, None);
        Ok(())
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
        let key = choose(&small, self.setting(false))?;
        let bases = Bases {
            input: small.input,
            output: small.output,
            peers: None,
        };
        self.push(
            small,
            (key, None),
            completion,
            bases,
            None,
            Some(agreement.clone()),
        );
        Ok(agreement)
    }

    fn push(
        &mut self,
        call: Call,
        keys: Keys,
        completion: Arc<Completion>,
        bases: Bases,
        agreement: Option<Arc<Agreement>>,
        keep: Option<Arc<Agreement>>,
    ) {
        let now = Instant::now();
        let fingerprint = Fingerprint::new(&call, self.history);
        self.history = fingerprint.extended();
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.remember(sequence, fingerprint);
        self.operations.push_back(Operation {
            sequence,
            completion,
            issued: now,
            deadline: now + call.timeout.unwrap_or(self.timeout),
            call,
            fingerprint,
            keys,
            bases,
            agreement,
            running: None,
            waiting: None,
            last_step: now,
            last_query: now,
            _keep: keep,
        });
    }

    fn announce_symmetric(&mut self, bytes: u64, segment: &Arc<Segment>) -> Result<u64, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let piece = self.symmetric_made;
        self.symmetric_made += 1;
        let message = Message::Symmetric {
            group: self.id,
            id: piece,
            bytes,
        }
        .encode();
        for (rank, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            let descriptor = [segment.descriptor()];
            let with: &[BorrowedFd<'_>] = if link.kind() == Kind::Tcp {
                &[]
            } else {
                &descriptor
            };
            link.message(&message, with)
                .map_err(|e| Error::from_link(e, Some(rank as u32), self.host_name(rank as u32)))?;
        }
        let (ranks, rank) = (self.size(), self.rank as usize);
        let shared = self
            .symmetric
            .entry(piece)
            .or_insert_with(|| Shared::new(bytes, ranks));
        shared.announced[rank] = true;
        shared.parts[rank] = Some(segment.clone());
        Ok(piece)
    }

    /// Sends a message to a rank.
    fn tell(&self, rank: u32, message: &Message) -> Result<(), Error> {
        let Some(link) = &self.links[rank as usize] else {
            return Err(Error::Internal(format!("no link to rank {rank}")));
        };
        link.message(&message.encode(), &[])
            .map_err(|error| Error::from_link(error, Some(rank), self.host_name(rank)))
    }
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
    }
}

fn symmetric_segment(bytes: u64) -> Result<Arc<Segment>, Error> {
    let refused = |error: std::io::Error| {
        Error::Config(format!(
            "cannot make {bytes} bytes of symmetric memory: {error}"
        ))
    };
    let segment = Segment::create("weft-symmetric", bytes.max(1)).map_err(refused)?;
    segment.reserve(0..segment.len()).map_err(refused)?;
    Ok(Arc::new(segment))
}

fn closed() -> Error {
    Error::Aborted {
        reason: "the group is closed".into(),
    }
}

/// The ranks that this one keeps control links to, so that news reach everybody: those 1, 2, 4 ... before and after it.
fn control_neighbours(rank: u32, size: u32) -> Vec<u32> {
    let distances = std::iter::successors(Some(1), |d| Some(d * 2)).take_while(|d| *d < size);
    let mut ranks: Vec<u32> = distances
        .flat_map(|d| [(rank + d) % size, (rank + size - d) % size])
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// The engine of an endpoint; started with its first group.
fn engine_of(endpoint: &Arc<Endpoint>) -> Result<Arc<Engine>, Error> {
    static ENGINES: Mutex<Vec<(u128, Weak<Engine>)>> = Mutex::new(Vec::new());
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|(_, engine)| engine.strong_count() > 0);
    let id = endpoint.id().0;
    let running = engines
        .iter()
        .find(|(known, _)| *known == id)
        .and_then(|(_, e)| e.upgrade());
    if let Some(engine) = running {
        return Ok(engine);
    }
    let engine = Engine::start(endpoint.clone())?;
    engines.push((id, Arc::downgrade(&engine)));
    Ok(engine)
}
