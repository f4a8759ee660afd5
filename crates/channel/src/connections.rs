//! The links and channels of a group, for the executor, addresses and messages.
//!
//! [Note: Quarantine] A peer that has mapped memory of this rank (its pool, its channel, the
//! group's scratch memory) can write to it at any time, regardless of what this rank knows about
//! it: a stopped process continues where it was. So that memory is used again only when the peer
//! has detached from the group, or the kernel has reported the end of its process. Until then it
//! stays with the closed group, unchanged: a peer that continues may also read it. Over a link that
//! does not map, this process writes the arriving data, so that revoking the grant is enough once
//! the link has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_bootstrap::Meeting;
use weft_call::Error;
use weft_flight::StageTrace;
use weft_memory::{Pool, PoolRange, RegisteredPiece, Registrations};
use weft_transport::{EndpointId, Iovec, Link, LinkError, RegionKey, Segment};

use super::layout::ChannelLayout;
use super::message::{ControlMessage, GrantedPart};
use super::parts::{ChannelPart, LANES, PARTS, PartSet, Place};

/// Ranges of the pool, for the parts that have memory.
pub(crate) type PartRanges = [Option<PoolRange>; PARTS];

/// The memory that this rank and one peer have granted each other. See `layout.rs`.
#[derive(Debug)]
pub struct Channel {
    /// The parts that the peer has been granted.
    granted: PartSet,
    /// The ranges of this rank's pool that the peer writes to.
    local: PartRanges,
    /// Staging memory for data that this rank sends, if the link needs registered memory and the
    /// data is in none: laid out like the peer's channel.
    staging: PartRanges,
    /// The peer's grants, once it has made the group.
    pub remote: Option<Remote>,
    /// By lane, for each slot: one more than the last tile for which this rank put data there.
    pub landed: [Vec<u64>; LANES],
}

impl Channel {
    /// The offset in this rank's pool of a place in a part that the peer has been granted.
    pub fn at(&self, place: Place) -> u64 {
        at(&self.local, place)
    }

    /// The offset of the channel's words.
    pub fn words(&self) -> u64 {
        self.at(ChannelPart::FIRST.start())
    }

    /// Whether both sides have granted all of these parts.
    pub fn is_granted(&self, parts: PartSet) -> bool {
        let remote = self.remote.as_ref();
        self.granted.contains(parts) && remote.is_some_and(|remote| remote.has(parts))
    }

    /// The offset of the staging memory for data whose destination is this place, if it must be
    /// staged.
    pub fn staging(&self, place: Place) -> Option<u64> {
        let range = self.staging[place.part.index()].as_ref()?;
        Some(range.offset + place.offset)
    }
}

fn at(ranges: &PartRanges, place: Place) -> u64 {
    let range = ranges[place.part.index()].as_ref();
    debug_assert!(range.is_some(), "{place:?} is not taken");
    range.map_or(0, |range| range.offset) + place.offset
}

/// The parts in a peer's pool that this rank may use.
#[derive(Clone, Debug)]
pub struct Remote {
    granted: PartSet,
    channel: [u64; PARTS],
    scratch: [u64; PARTS],
    /// The pool, if it is mapped for loads and stores.
    pub pool: Option<Arc<Segment>>,
}

impl Remote {
    /// The offset of a place of the channel, in a granted part.
    pub fn channel(&self, place: Place) -> u64 {
        self.channel[place.part.index()] + place.offset
    }

    /// The offset of a place of the peer's scratch memory, in a granted part.
    pub fn scratch(&self, place: Place) -> u64 {
        self.scratch[place.part.index()] + place.offset
    }

    /// The offset of the channel's words.
    pub fn words(&self) -> u64 {
        self.channel(ChannelPart::FIRST.start())
    }

    fn has(&self, parts: PartSet) -> bool {
        self.granted.contains(parts)
    }
}

/// A group's ranks, and this rank's connections to them.
pub struct Connections {
    /// The group's identity.
    pub group: u64,
    /// This rank's number.
    pub rank: u32,
    /// The agreement of the ranks at the rendezvous.
    pub meeting: Meeting,
    /// The layout of channels.
    pub layout: ChannelLayout,
    /// The links, by rank.
    pub links: Vec<Option<Arc<dyn Link>>>,
    /// The channels, by rank.
    pub channels: Vec<Option<Channel>>,
    /// This rank's scratch memory, as far as it is allocated.
    scratch: PartRanges,
    /// Ranks from which nothing more arrives: they have left, ended their link, or are lost.
    pub departed: Vec<bool>,
    /// Ranks that have left in order, and access no memory of this rank any more.
    pub detached: Vec<bool>,
    /// The caller's memory that links read in place.
    pub registrations: Arc<Registrations>,
    staged_bytes: AtomicU64,
    /// The stages of tiles, while they are traced.
    pub stages: Arc<StageTrace>,
}

impl Connections {
    /// Connections of a group without links.
    pub fn new(
        group: u64,
        rank: u32,
        meeting: Meeting,
        layout: ChannelLayout,
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
            scratch: Default::default(),
            departed: vec![false; size],
            detached: vec![false; size],
            registrations: Arc::clone(registrations),
            staged_bytes: AtomicU64::new(0),
            stages: Arc::clone(stages),
        }
    }

    /// The number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.meeting.members.len() as u32
    }

    /// The name of a rank's host.
    pub fn host_name(&self, rank: u32) -> &str {
        &self.meeting.members[rank as usize].address.host_name
    }

    /// A rank's endpoint.
    pub fn endpoint_of(&self, rank: u32) -> EndpointId {
        self.meeting.members[rank as usize].address.id
    }

    /// The rank of an endpoint in this group.
    pub fn rank_of(&self, endpoint: EndpointId) -> Option<u32> {
        let mut members = self.meeting.members.iter();
        let found = members.position(|member| member.address.id == endpoint);
        found.map(|rank| rank as u32)
    }

    /// Whether ranks without a link yet may still connect.
    pub fn awaits_connections(&self) -> bool {
        let unlinked = |rank: &u32| self.links[*rank as usize].is_none();
        let mut others = (0..self.size()).filter(|rank| *rank != self.rank && unlinked(rank));
        others.any(|rank| !self.departed[rank as usize])
    }

    /// Whether this link connects this rank to another.
    pub fn uses_link(&self, rank: u32, link: &Arc<dyn Link>) -> bool {
        let used = &self.links[rank as usize];
        used.as_ref().is_some_and(|used| Arc::ptr_eq(used, link))
    }

    /// Whether there are a link and a channel to a rank.
    pub fn is_linked(&self, rank: u32) -> bool {
        self.links[rank as usize].is_some() && self.channels[rank as usize].is_some()
    }

    /// A peer's grants, if it has sent any.
    #[inline]
    pub fn remote(&self, rank: u32) -> Option<&Remote> {
        self.channels[rank as usize].as_ref()?.remote.as_ref()
    }

    /// Makes sure that there is a channel to a peer over this link, and notifies the peer. The
    /// channel has no memory yet.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the link has ended.
    pub fn open_channel(&mut self, rank: u32, link: &Arc<dyn Link>) -> Result<(), Error> {
        let peer = rank as usize;
        if self.links[peer].is_none() {
            self.links[peer] = Some(link.clone());
        }
        if self.channels[peer].is_some() {
            return Ok(());
        }
        self.channels[peer] = Some(Channel {
            granted: PartSet::NONE,
            local: Default::default(),
            staging: Default::default(),
            remote: None,
            landed: [(); LANES].map(|()| vec![0; self.layout.slots]),
        });
        self.send_grant(rank, link, vec![])
    }

    /// Allocates memory for these parts, where that is not done yet, and grants it to ranks to
    /// which there are channels.
    ///
    /// # Errors
    /// [`Error::Config`] if the pool is exhausted, or [`Error::PeerLost`] if a link has ended.
    pub fn grant(
        &mut self,
        pool: &Pool,
        ranks: impl IntoIterator<Item = u32>,
        parts: PartSet,
    ) -> Result<(), Error> {
        for part in parts.iter() {
            let scratch = &mut self.scratch[part.index()];
            if scratch.is_none() {
                *scratch = take(pool, self.layout.scratch_bytes(part))?;
            }
        }
        for rank in ranks {
            self.grant_to(pool, rank, parts)?;
        }
        Ok(())
    }

    fn grant_to(&mut self, pool: &Pool, rank: u32, parts: PartSet) -> Result<(), Error> {
        let peer = rank as usize;
        let (Some(link), Some(channel)) = (&self.links[peer], &mut self.channels[peer]) else {
            return Ok(());
        };
        let missing = parts.without(channel.granted);
        if missing == PartSet::NONE || self.departed[peer] {
            return Ok(());
        }
        let link = link.clone();
        let mut granted = Vec::new();
        for part in missing.iter() {
            let (index, bytes) = (part.index(), self.layout.channel_bytes(part));
            let local = take(pool, bytes)?;
            if link.capabilities().needs_registration {
                channel.staging[index] = take(pool, bytes)?;
            }
            let [own, scratch] = [&local, &self.scratch[index]];
            let [own, scratch] = [own, scratch].map(|range| range.as_ref().map_or(0, |r| r.offset));
            let may_write = local.as_ref().map(|local| local.range());
            channel.local[index] = local;
            if let Some(range) = may_write {
                let granted = link.grant(RegionKey::POOL, range);
                granted.map_err(|error| lost(&self.meeting, rank, error))?;
            }
            granted.push(GrantedPart {
                part: part.number(),
                channel: own,
                scratch,
            });
            channel.granted = channel.granted | part;
        }
        self.send_grant(rank, &link, granted)
    }

    fn send_grant(
        &self,
        rank: u32,
        link: &Arc<dyn Link>,
        parts: Vec<GrantedPart>,
    ) -> Result<(), Error> {
        let group = self.group;
        let grant = ControlMessage::Grant { group, parts };
        let sent = link.message(&grant.encode());
        sent.map_err(|error| lost(&self.meeting, rank, error))
    }

    /// Records a peer's grants. An offset outside its pool violates the protocol, and so does
    /// another offset for a part that it has granted before.
    ///
    /// # Errors
    /// [`LinkError::Protocol`] for a grant that is not allowed.
    pub fn granted(&mut self, rank: u32, parts: &[GrantedPart]) -> Result<(), LinkError> {
        let (link, local) = (
            &self.links[rank as usize],
            &mut self.channels[rank as usize],
        );
        let (Some(link), Some(local)) = (link, local) else {
            return Err(LinkError::Protocol("a grant without a channel".into()));
        };
        let remote = local.remote.get_or_insert_with(|| Remote {
            granted: PartSet::NONE,
            channel: [0; PARTS],
            scratch: [0; PARTS],
            pool: link.memory(RegionKey::POOL),
        });
        for granted in parts {
            let part =
                ChannelPart::numbered(granted.part).filter(|part| !remote.has((*part).into()));
            let Some(part) = part else {
                return Err(LinkError::Protocol(
                    "a grant of a part that was granted before".into(),
                ));
            };
            let fits = |start: u64, bytes: u64| {
                let end = start.checked_add(bytes);
                let pool = remote.pool.as_ref();
                let within = |end| pool.is_none_or(|pool| end <= pool.len());
                start.is_multiple_of(64) && end.is_some_and(within)
            };
            if !fits(granted.channel, self.layout.channel_bytes(part))
                || !fits(granted.scratch, self.layout.scratch_bytes(part))
            {
                return Err(LinkError::Protocol("a grant outside of the pool".into()));
            }
            remote.channel[part.index()] = granted.channel;
            remote.scratch[part.index()] = granted.scratch;
            remote.granted = remote.granted | part;
        }
        Ok(())
    }

    /// Whether this rank and a peer have granted each other all of these parts.
    pub fn shares(&self, rank: u32, parts: PartSet) -> bool {
        let channel = self.channels[rank as usize].as_ref();
        channel.is_some_and(|channel| channel.is_granted(parts))
    }

    /// The offset of a place in this rank's scratch memory, in a part that it has granted.
    pub fn scratch(&self, place: Place) -> u64 {
        at(&self.scratch, place)
    }

    /// An address in a peer's pool, in a granted part; null if the pool is not mapped.
    pub fn peer(&self, rank: u32, offset: impl Fn(&Remote) -> u64) -> *mut u8 {
        let mapped = self.remote(rank).and_then(|remote| {
            let base = remote.pool.as_ref()?.base().as_ptr();
            Some(base.wrapping_add(offset(remote) as usize))
        });
        mapped.unwrap_or(std::ptr::null_mut())
    }

    /// Whether data sent to a peer must be in memory that is registered with the link.
    pub fn needs_registration(&self, rank: u32) -> bool {
        let link = self.links[rank as usize].as_ref();
        link.is_some_and(|link| link.capabilities().needs_registration)
    }

    /// The caller's memory in the form that the link to a peer reads in place, if all of it is
    /// registered.
    pub fn registered(&self, rank: u32, pieces: &[Iovec]) -> Option<Vec<RegisteredPiece>> {
        let kind = self.links[rank as usize].as_ref()?.kind();
        self.registrations.find_all(kind, pieces)
    }

    /// Counts bytes that were copied before they are sent.
    pub fn count_staged(&self, bytes: u64) {
        self.staged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The number of such bytes.
    pub fn staged_bytes(&self) -> u64 {
        self.staged_bytes.load(Ordering::Relaxed)
    }

    /// Whether a peer may still write into memory that it was granted. See [Note: Quarantine].
    pub fn may_be_written_by(&self, rank: u32) -> bool {
        let peer = rank as usize;
        match &self.links[peer] {
            Some(link) if !self.detached[peer] => match link.capabilities().maps {
                true => !link.peer_has_ended(),
                false => !self.departed[peer],
            },
            _ => false,
        }
    }

    /// The size of all grants to peers, in bytes.
    pub fn granted_bytes(&self) -> u64 {
        let channels = self.channels.iter().flatten();
        let granted = channels.flat_map(|channel| &channel.local);
        granted
            .chain(&self.scratch)
            .flatten()
            .map(|range| range.bytes)
            .sum()
    }

    /// Takes back a peer's channel: its memory is returned to the pool.
    pub fn take_channel(&mut self, rank: u32) -> Vec<PoolRange> {
        let Some(channel) = self.channels[rank as usize].take() else {
            return vec![];
        };
        if let Some(link) = &self.links[rank as usize] {
            let written = channel.local.iter().flatten();
            written.for_each(|range| link.revoke(RegionKey::POOL, range.range()));
        }
        let ranges = channel.local.into_iter().chain(channel.staging);
        ranges.flatten().collect()
    }

    /// The memory that remains once all channels are taken back.
    pub fn into_scratch(self) -> impl Iterator<Item = PoolRange> {
        self.scratch.into_iter().flatten()
    }

    /// Sends a control message to all members to which there are links.
    pub fn send_to_all(&self, message: &ControlMessage) {
        let bytes = message.encode();
        for link in self.links.iter().flatten() {
            // A failure of the link is detected when it is read.
            let _ = link.message(&bytes);
        }
    }
}

/// Memory for a part of this many bytes.
fn take(pool: &Pool, bytes: u64) -> Result<Option<PoolRange>, Error> {
    match bytes {
        0 => Ok(None),
        bytes => pool.allocate(bytes, 4096).map(Some),
    }
}

fn lost(meeting: &Meeting, rank: u32, error: LinkError) -> Error {
    let host = &meeting.members[rank as usize].address.host_name;
    Error::from_link(error, Some(rank), host)
}

/// The ranks to which this one keeps control links, so that messages reach every rank: those 1, 2,
/// 4 ... before and after it.
pub fn control_neighbours(rank: u32, size: u32) -> Vec<u32> {
    let distances = std::iter::successors(Some(1), |d| Some(d * 2)).take_while(|d| *d < size);
    let mut ranks: Vec<u32> = distances
        .flat_map(|d| [(rank + d) % size, (rank + size - d) % size])
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
