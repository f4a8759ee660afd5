//! The links and channels of a group, for the executor, addresses and messages.
//!
//! [Note: Quarantine] What a peer maps of this rank's pool, its channel and the group's scratch
//! memory, it can write by itself, whatever this rank has been told of it: a process that was
//! stopped goes on where it was. So that memory is used again only when the peer has detached from
//! the group, or the kernel has seen the end of its process. Until then it stays with the closed
//! group, as it is: a peer that goes on may also read it. Over a link that does not map, this
//! process writes what arrives, so that taking back the grant is enough once the link has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_transport::{EndpointId, Iovec, Link, LinkError, RegionKey, Segment};

use super::layout::{ChannelLayout, LANES};
use super::message::ControlMessage;
use crate::Error;
use crate::bootstrap::Meeting;
use crate::flight::StageTrace;
use crate::memory::{Pool, PoolRange, RegisteredPiece, Registrations};

/// The memory that this rank and one peer have granted each other. See `layout.rs`.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The part of this rank's pool that the peer writes to.
    pub(crate) local: PoolRange,
    /// Where what this rank sends lies before, if the link needs registered memory and it lies in
    /// none: laid out as the peer's channel.
    pub(crate) staging: Option<PoolRange>,
    /// Where this rank writes in the peer's pool, once granted.
    pub(crate) remote: Option<Remote>,
    /// By lane, for each slot: one more than the last tile for which this rank put something there.
    pub(crate) landed: [Vec<u64>; LANES],
}

/// Offsets in a peer's pool.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) channel: u64,
    pub(crate) scratch: u64,
    /// The pool, where loads and stores reach it.
    pub(crate) pool: Option<Arc<Segment>>,
}

/// A group's ranks, as far as this rank is connected to them.
pub(crate) struct Connections {
    pub(crate) group: u64,
    pub(crate) rank: u32,
    pub(crate) meeting: Meeting,
    pub(crate) layout: ChannelLayout,
    pub(crate) links: Vec<Option<Arc<dyn Link>>>,
    pub(crate) channels: Vec<Option<Channel>>,
    /// This rank's temporary memory.
    pub(crate) scratch: PoolRange,
    /// Ranks from which nothing more comes: they have left, ended their link, or are lost.
    pub(crate) left: Vec<bool>,
    /// Those that have left it in order, and touch nothing of this rank's any more.
    pub(crate) detached: Vec<bool>,
    /// The memory of the caller's that links read where it lies.
    pub(crate) registrations: Arc<Registrations>,
    staged_bytes: AtomicU64,
    /// What is done with tiles, while somebody traces it.
    pub(crate) stages: Arc<StageTrace>,
}

impl Connections {
    pub(crate) fn new(
        group: u64,
        rank: u32,
        meeting: Meeting,
        layout: ChannelLayout,
        scratch: PoolRange,
        (registrations, stages): (&Arc<Registrations>, &Arc<StageTrace>),
    ) -> Self {
        let size = meeting.members.len();
        Connections {
            group,
            rank,
            meeting,
            layout,
            links: vec![None; size],
            channels: (0..size).map(|_| None).collect(),
            scratch,
            left: vec![false; size],
            detached: vec![false; size],
            registrations: Arc::clone(registrations),
            staged_bytes: AtomicU64::new(0),
            stages: Arc::clone(stages),
        }
    }

    pub(crate) fn size(&self) -> u32 {
        self.meeting.members.len() as u32
    }

    pub(crate) fn host_name(&self, rank: u32) -> &str {
        &self.meeting.members[rank as usize].address.host_name
    }

    pub(crate) fn endpoint_of(&self, rank: u32) -> EndpointId {
        self.meeting.members[rank as usize].address.id
    }

    /// The rank of an endpoint in this group.
    pub(crate) fn rank_of(&self, endpoint: EndpointId) -> Option<u32> {
        let mut members = self.meeting.members.iter();
        let found = members.position(|member| member.address.id == endpoint);
        found.map(|rank| rank as u32)
    }

    /// Whether there are ranks that may call, as there is no link to them yet.
    pub(crate) fn may_be_called(&self) -> bool {
        let unlinked = |rank: &u32| self.links[*rank as usize].is_none();
        let mut others = (0..self.size()).filter(|rank| *rank != self.rank && unlinked(rank));
        others.any(|rank| !self.left[rank as usize])
    }

    /// Whether this rank reaches another over this link.
    pub(crate) fn is_over(&self, rank: u32, link: &Arc<dyn Link>) -> bool {
        let used = &self.links[rank as usize];
        used.as_ref().is_some_and(|used| Arc::ptr_eq(used, link))
    }

    /// Whether there are a link and a channel to a rank.
    pub(crate) fn is_linked(&self, rank: u32) -> bool {
        self.links[rank as usize].is_some() && self.channels[rank as usize].is_some()
    }

    /// Where a peer has granted its memory, if it has.
    pub(crate) fn remote(&self, rank: u32) -> Option<&Remote> {
        self.channels[rank as usize].as_ref()?.remote.as_ref()
    }

    /// Makes sure that there is a channel to a peer over this link, and grants it.
    pub(crate) fn open_channel(
        &mut self,
        pool: &Pool,
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
        let allocate = || pool.allocate(self.layout.channel_bytes(), 4096);
        let local = allocate()?;
        let staging = match link.capabilities().needs_registration {
            true => Some(allocate()?),
            false => None,
        };
        let granted = link.grant(RegionKey::POOL, local.range());
        let grant = ControlMessage::Grant {
            group: self.group,
            channel: local.offset,
            scratch: self.scratch.offset,
        };
        self.channels[peer] = Some(Channel {
            local,
            staging,
            remote: None,
            landed: [(); LANES].map(|()| vec![0; self.layout.slots]),
        });
        let told = granted.and_then(|()| link.message(&grant.encode()));
        told.map_err(|error| Error::from_link(error, Some(rank), self.host_name(rank)))
    }

    /// Takes note of what a peer has granted. An offset outside its pool is a breach of the
    /// protocol.
    pub(crate) fn granted(
        &mut self,
        rank: u32,
        (channel, scratch): (u64, u64),
    ) -> Result<(), LinkError> {
        let (link, local) = (
            &self.links[rank as usize],
            &mut self.channels[rank as usize],
        );
        let (Some(link), Some(local)) = (link, local) else {
            return Err(LinkError::Protocol("a grant without a channel".into()));
        };
        let pool = link.memory(RegionKey::POOL);
        if let Some(pool) = &pool {
            let fits = |start: u64, bytes: u64| {
                let end = start.checked_add(bytes);
                start.is_multiple_of(64) && end.is_some_and(|end| end <= pool.len())
            };
            if !fits(channel, self.layout.channel_bytes())
                || !fits(scratch, self.layout.scratch_total())
            {
                return Err(LinkError::Protocol("a grant outside of the pool".into()));
            }
        }
        local.remote = Some(Remote {
            channel,
            scratch,
            pool,
        });
        Ok(())
    }

    /// An address in a peer's pool, of what it has granted; null where that is not mapped.
    pub(crate) fn peer(&self, rank: u32, offset: impl Fn(&Remote) -> u64) -> *mut u8 {
        let mapped = self.remote(rank).and_then(|remote| {
            let base = remote.pool.as_ref()?.base().as_ptr();
            Some(base.wrapping_add(offset(remote) as usize))
        });
        mapped.unwrap_or(std::ptr::null_mut())
    }

    /// Where in the own pool what is sent to a peer must be copied first, if it must.
    pub(crate) fn staging(&self, rank: u32) -> Option<u64> {
        let staging = self.channels[rank as usize].as_ref()?.staging.as_ref()?;
        Some(staging.offset)
    }

    /// Memory of the caller's as the link to a peer reads it where it lies, if all of it is
    /// registered.
    pub(crate) fn registered(&self, rank: u32, pieces: &[Iovec]) -> Option<Vec<RegisteredPiece>> {
        let kind = self.links[rank as usize].as_ref()?.kind();
        self.registrations.find_all(kind, pieces)
    }

    /// Takes note of memory that was copied before it is sent.
    pub(crate) fn count_staged(&self, bytes: u64) {
        self.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How much of that there was.
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.staged_bytes.load(Ordering::Relaxed)
    }

    /// Whether a peer may still write into what it was granted. See [Note: Quarantine].
    pub(crate) fn may_be_written_by(&self, rank: u32) -> bool {
        let peer = rank as usize;
        match &self.links[peer] {
            Some(link) if !self.detached[peer] => match link.capabilities().maps {
                true => !link.peer_has_ended(),
                false => !self.left[peer],
            },
            _ => false,
        }
    }

    /// The size of what peers have been granted, in bytes.
    pub(crate) fn granted_bytes(&self) -> u64 {
        let channels = self.channels.iter().flatten();
        let granted: u64 = channels.map(|channel| channel.local.bytes).sum();
        granted + self.scratch.bytes
    }

    /// Takes a peer's channel back: its memory, which is the pool's again.
    pub(crate) fn take_channel(&mut self, rank: u32) -> impl Iterator<Item = PoolRange> + use<> {
        let channel = self.channels[rank as usize].take();
        if let (Some(channel), Some(link)) = (&channel, &self.links[rank as usize]) {
            link.revoke(RegionKey::POOL, channel.local.range());
        }
        let ranges = channel.map(|channel| [Some(channel.local), channel.staging]);
        ranges.into_iter().flatten().flatten()
    }

    /// Sends a control message to all members that there are links to.
    pub(crate) fn tell_all(&self, message: &ControlMessage) {
        let bytes = message.encode();
        for link in self.links.iter().flatten() {
            // A link that fails is noticed when it is read.
            let _ = link.message(&bytes);
        }
    }
}

/// The ranks that this one keeps control links to, so that news reach everybody: those 1, 2, 4 ...
/// before and after it.
pub(crate) fn control_neighbours(rank: u32, size: u32) -> Vec<u32> {
    let distances = std::iter::successors(Some(1), |d| Some(d * 2)).take_while(|d| *d < size);
    let mut ranks: Vec<u32> = distances
        .flat_map(|d| [(rank + d) % size, (rank + size - d) % size])
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
