//! Symmetric memory: user-visible memory that the group's other ranks on this host map as well.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_schedule::Collective;
use weft_transport::{RegionKey, Segment};

use crate::call::mix;
use crate::endpoint::Exposed;
use crate::engine::Engine;
use crate::execute::Bases;
use crate::group::{Group, closed};
use crate::group_state::GroupState;
use crate::message::Message;
use crate::{Call, Error};

/// One piece of symmetric memory, as this rank sees it.
pub(crate) struct Shared {
    pub(crate) bytes: u64,
    /// Every rank's part, as mapped here; nothing for ranks on other hosts.
    pub(crate) parts: Vec<Option<Arc<Segment>>>,
    /// The ranks whose announcement has come.
    pub(crate) announced: Vec<bool>,
    /// What this rank's part is for the others, once it is there.
    exposed: Option<Exposed>,
    /// The ranks that have let go.
    released: Vec<bool>,
    /// Another size that some rank asks for.
    other_size: Option<u64>,
}

impl Shared {
    pub(crate) fn new(bytes: u64, ranks: u32) -> Self {
        Shared {
            bytes,
            parts: vec![None; ranks as usize],
            announced: vec![false; ranks as usize],
            exposed: None,
            released: vec![false; ranks as usize],
            other_size: None,
        }
    }

    pub(crate) fn complete(&self) -> bool {
        self.announced.iter().all(|announced| *announced)
    }

    /// Where an address lies within this rank's part, if it does.
    fn offset(&self, rank: u32, address: *const u8, bytes: u64) -> Option<u64> {
        let part = self.parts[rank as usize].as_ref()?;
        let offset = (address as u64).checked_sub(part.base().as_ptr() as u64)?;
        (offset.checked_add(bytes)? <= self.bytes).then_some(offset)
    }
}

/// A group's symmetric memory. Operations on the latency path look here without asking the engine.
#[derive(Default)]
pub(crate) struct Pieces {
    /// How many pieces this rank has ever made. The same on all ranks between two calls.
    made: AtomicU64,
    pieces: Mutex<HashMap<u64, Shared>>,
}

/// Where a call's memory lies, if it is symmetric.
struct Located<'a> {
    output: (u64, &'a Shared, u64),
    input: (u64, &'a Shared, u64),
    gathers_in_place: bool,
    input_bytes: u64,
}

impl Pieces {
    /// Whether there is or was any.
    pub(crate) fn made(&self) -> bool {
        self.made.load(Ordering::Acquire) > 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u64, Shared>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which piece a call's memory lies in and where in it, as one number, and every rank's `Input` and `Output`. The number is the
    /// same on all ranks that pass the same piece at the same place, and not 0.
    pub(crate) fn find(
        &self,
        call: &Call,
        rank: u32,
        buffers: &mut [(*const u8, *mut u8)],
    ) -> Option<u64> {
        let pieces = self.lock();
        let located = Located::of(&pieces, call, rank, buffers.len() as u32)?;
        for (rank, buffers) in buffers.iter_mut().enumerate() {
            *buffers = located.buffers(rank);
        }
        Some(located.place())
    }
}

impl<'a> Located<'a> {
    fn of(pieces: &'a HashMap<u64, Shared>, call: &Call, rank: u32, ranks: u32) -> Option<Self> {
        let (input_bytes, output_bytes) = buffer_bytes(call, ranks);
        let own = |address: *const u8, bytes: u64| {
            pieces.iter().find_map(|(piece, shared)| {
                let offset = shared.offset(rank, address, bytes)?;
                shared
                    .parts
                    .iter()
                    .all(Option::is_some)
                    .then_some((*piece, shared, offset))
            })
        };
        let output = own(call.output.cast_const(), output_bytes)?;
        let input = match call.works_in_place() {
            true => output,
            false => own(call.input, input_bytes)?,
        };
        // Every rank's own block of an all-gather may lie where it ends up: at another place on each rank.
        let own_block = u64::from(rank) * input_bytes;
        let gathers_in_place = matches!(call.collective, Collective::AllGather)
            && (input.0, input.2) == (output.0, output.2 + own_block);
        Some(Located {
            output,
            input,
            gathers_in_place,
            input_bytes,
        })
    }

    /// A rank's `Input` and `Output`.
    fn buffers(&self, rank: usize) -> (*const u8, *mut u8) {
        let at = |shared: &Shared, offset: u64| {
            let part = shared.parts[rank].as_ref();
            part.map_or(std::ptr::null_mut(), |part| {
                part.base().as_ptr().wrapping_add(offset as usize)
            })
        };
        let (_, output, output_offset) = self.output;
        let (_, input, mut input_offset) = self.input;
        if self.gathers_in_place {
            input_offset = output_offset + rank as u64 * self.input_bytes;
        }
        (
            at(input, input_offset).cast_const(),
            at(output, output_offset),
        )
    }

    fn place(&self) -> u64 {
        let (output_piece, _, output_offset) = self.output;
        let (input_piece, _, input_offset) = self.input;
        let input_place = match self.gathers_in_place {
            true => u64::MAX,
            false => input_offset,
        };
        [output_offset, input_piece, input_place]
            .into_iter()
            .fold(mix(1, output_piece), mix)
            .max(1)
    }
}

/// Memory that the group's ranks on this host reach directly. Dropping it lets go of it; it is freed once all ranks have.
///
/// Operations on it must be over before it is dropped.
pub struct Symmetric {
    segment: Arc<Segment>,
    bytes: u64,
    piece: u64,
    group: u64,
    engine: Arc<Engine>,
}

impl Drop for Symmetric {
    fn drop(&mut self) {
        if self.engine.check_generation().is_err() {
            return;
        }
        self.engine.with(|state, _| {
            if let Some(group) = state.groups.get_mut(&self.group) {
                group.tell_all(&Message::Released {
                    group: self.group,
                    id: self.piece,
                });
                group.symmetric_released(group.rank, self.piece);
            }
        });
    }
}

impl Symmetric {
    /// The first byte of this rank's part.
    pub fn base(&self) -> *mut u8 {
        self.segment.base().as_ptr()
    }

    /// The size of each rank's part, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Group {
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
            let exposed = state.endpoint.expose(&segment);
            let exposed = exposed.map_err(|error| refused(bytes, &error))?;
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.announce_symmetric(bytes, &segment, exposed)
        })?;
        drop(order);
        self.await_symmetric(piece, bytes, deadline)?;
        let (group, engine) = (self.id, self.engine.clone());
        Ok(Symmetric {
            segment,
            bytes,
            piece,
            group,
            engine,
        })
    }

    /// How many operations have been carried out on symmetric memory as such, without staging, since the group was made.
    pub fn symmetric_operations(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| {
                let inline = group.inline.as_ref();
                group.symmetric_operations
                    + inline.map_or(0, |inline| inline.symmetric_operations())
            })
        })
    }

    fn await_symmetric(&self, piece: u64, bytes: u64, deadline: Instant) -> Result<(), Error> {
        loop {
            let (complete, other) = self.engine.with(|state, finished| {
                state.pass(finished);
                let group = state.groups.get(&self.id).ok_or_else(closed)?;
                if let Some(error) = &group.broken {
                    return Err(error.clone());
                }
                let pieces = group.symmetric.lock();
                let shared = pieces.get(&piece);
                Ok((
                    shared.is_some_and(Shared::complete),
                    shared.and_then(|shared| shared.other_size),
                ))
            })?;
            if let Some(other) = other {
                return Err(Error::Config(format!(
                    "symmetric memory: this rank asks for {bytes} bytes, another for {other}"
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
}

impl GroupState {
    fn announce_symmetric(
        &mut self,
        bytes: u64,
        segment: &Arc<Segment>,
        exposed: Exposed,
    ) -> Result<u64, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let piece = self.symmetric.made.fetch_add(1, Ordering::AcqRel);
        for (rank, link) in (0..).zip(&self.links) {
            let Some((link, key)) = link
                .as_ref()
                .and_then(|l| Some((l, exposed.key(l.kind())?)))
            else {
                continue;
            };
            let message = Message::Symmetric {
                group: self.id,
                id: piece,
                bytes,
                region: key.0,
            };
            let granted = link.grant(key, 0..bytes);
            let told = granted.and_then(|()| link.message(&message.encode()));
            told.map_err(|e| Error::from_link(e, Some(rank), self.host_name(rank)))?;
        }
        let (ranks, rank) = (self.size(), self.rank as usize);
        let mut pieces = self.symmetric.lock();
        let shared = pieces
            .entry(piece)
            .or_insert_with(|| Shared::new(bytes, ranks));
        if shared.bytes != bytes {
            shared.other_size = Some(shared.bytes);
        }
        shared.announced[rank] = true;
        shared.parts[rank] = Some(segment.clone());
        shared.exposed = Some(exposed);
        Ok(piece)
    }

    /// A peer has announced its part of a piece.
    pub(crate) fn symmetric_arrived(
        &mut self,
        rank: u32,
        piece: u64,
        bytes: u64,
        region: RegionKey,
    ) {
        let ranks = self.size();
        let link = self.links[rank as usize].as_ref();
        let part = link.and_then(|link| link.memory(region));
        let mut pieces = self.symmetric.lock();
        let shared = pieces
            .entry(piece)
            .or_insert_with(|| Shared::new(bytes, ranks));
        shared.announced[rank as usize] = true;
        if shared.bytes != bytes {
            shared.other_size = Some(bytes);
        }
        shared.parts[rank as usize] = part.filter(|part| part.len() >= bytes);
    }

    /// A rank has let go of a piece. Once all have, nobody can call anything on it any more, and it is unmapped.
    pub(crate) fn symmetric_released(&mut self, rank: u32, piece: u64) {
        let mut pieces = self.symmetric.lock();
        if let Some(shared) = pieces.get_mut(&piece) {
            shared.released[rank as usize] = true;
            if shared.released.iter().all(|released| *released) {
                pieces.remove(&piece);
            }
        }
    }

    /// Where a call's memory lies, as one number, and every rank's addresses. See [`Pieces::find`].
    pub(crate) fn symmetric_bases(&self, call: &Call) -> Option<(u64, Bases)> {
        let mut buffers = vec![(std::ptr::null(), std::ptr::null_mut()); self.size() as usize];
        let place = self.symmetric.find(call, self.rank, &mut buffers)?;
        let bases = Bases {
            input: call.input,
            output: call.output,
            peers: Some(buffers.into()),
        };
        Some((place, bases))
    }
}

/// The sizes of a call's buffers on one rank.
fn buffer_bytes(call: &Call, ranks: u32) -> (u64, u64) {
    use Collective::{AllGather, Gather, ReduceScatter, Scatter};
    let message = call.message_elements(ranks) * call.dtype.size() as u64;
    let block = message / u64::from(ranks);
    match call.collective {
        AllGather | Gather { .. } => (block, message),
        ReduceScatter | Scatter { .. } => (message, block),
        _ => (message, message),
    }
}

fn symmetric_segment(bytes: u64) -> Result<Arc<Segment>, Error> {
    let refused = |error: std::io::Error| refused(bytes, &error);
    let segment = Segment::create("weft-symmetric", bytes.max(1)).map_err(refused)?;
    segment.reserve(0..segment.len()).map_err(refused)?;
    Ok(Arc::new(segment))
}

fn refused(bytes: u64, error: &dyn std::error::Error) -> Error {
    Error::Config(format!(
        "cannot make {bytes} bytes of symmetric memory: {error}"
    ))
}
