//! Matching of point-to-point messages by source and tag, and the flow of long messages.
//!
//! A short message is sent with its envelope (eagerly). A long one is offered, and sent in
//! fragments once the receiver has memory for it. Fragments of all long messages between two ranks
//! use one ring of slots in the receiver's channel, in the order in which the receiver reported
//! that it was ready, so that they need no headers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weft_call::{Completion, Finished, TimeLimit};
use weft_channel::{Channel, ChannelLayout, ControlMessage, FRAGMENT_BYTES, Place};
use weft_memory::{RegisteredMemory, Registrations, access};
use weft_transport::{Iovec, Link, LinkError, RegionKey, Segment, Signal, Submission, Ticket};

use super::flow::{Allowance, OfferedMessage, Unclaimed};
use crate::Error;

/// A receive that waits for its message.
pub(crate) struct Posted {
    pub(crate) from: Option<u32>,
    pub(crate) tag: u64,
    pub(crate) target: ReceiveTarget,
}

/// Memory to receive into.
pub(crate) struct ReceiveTarget {
    pub(crate) memory: *mut u8,
    pub(crate) bytes: u64,
    pub(crate) completion: Arc<Completion>,
    pub(crate) due: TimeLimit,
}

// SAFETY: a plain address; `Group::receive` states the requirements on the memory.
unsafe impl Send for ReceiveTarget {}

/// Memory to send from.
pub(crate) struct SendSource {
    pub(crate) memory: *const u8,
    pub(crate) bytes: u64,
    /// The registration by which the link reads memory of a device.
    pub(crate) device: Option<Arc<RegisteredMemory>>,
    pub(crate) completion: Arc<Completion>,
    pub(crate) due: TimeLimit,
}

// SAFETY: a plain address; `Group::send` states the requirements on the memory.
unsafe impl Send for SendSource {}

enum Arrived {
    Whole(Vec<u8>),
    Offered { id: u64, bytes: u64 },
}

/// Unfinished messages from and to one peer.
#[derive(Default)]
struct PeerMessages {
    /// Messages without a matching receive, with their tags, in order.
    arrived: VecDeque<(u64, Arrived)>,
    /// The amount of those messages.
    unclaimed: Unclaimed,
    /// The allowance for messages to the peer.
    allowance: Allowance,
    /// Long messages that the peer has no memory for yet.
    offered: HashMap<u64, SendSource>,
    next_offer: u64,
    /// The error of the last short message whose length the peer did not expect.
    unfit: Option<Error>,
    /// Long messages that are being sent to the peer, in order, and the sent bytes of the first.
    sending: VecDeque<SendSource>,
    sent: u64,
    /// Fragments that are being sent, in order.
    in_flight: VecDeque<Fragment>,
    /// Fragments sent so far, of all messages.
    fragments_sent: u64,
    /// Long messages that are being received, in order, and the received bytes of the first.
    receiving: VecDeque<ReceiveTarget>,
    received: u64,
    /// Fragments received so far.
    fragments_taken: u64,
}

/// A fragment that is being sent.
struct Fragment {
    /// `None` once it is complete.
    ticket: Option<Ticket>,
    /// The message, if this is its last fragment.
    last: Option<SendSource>,
    /// Held as long as the link reads the source.
    _registered: Option<Arc<RegisteredMemory>>,
}

/// The point-to-point messages of one group.
#[derive(Default)]
pub(crate) struct MessageMatching {
    posted: Vec<Posted>,
    peers: HashMap<u32, PeerMessages>,
}

/// The resources for fragments to and from one peer.
pub(crate) struct Route<'a> {
    pub(crate) link: &'a dyn Link,
    pub(crate) channel: &'a Channel,
    pub(crate) layout: ChannelLayout,
    pub(crate) pool: &'a Segment,
    pub(crate) registrations: &'a Registrations,
    /// Counts bytes that are copied before they are sent.
    pub(crate) count_staged: &'a dyn Fn(u64),
}

impl Route<'_> {
    /// A fragment of a message that the link can read, in place or as a copy in the pool, with the
    /// registration that must last meanwhile.
    fn readable(
        &self,
        piece: Iovec,
        device: Option<&Arc<RegisteredMemory>>,
        place: Place,
    ) -> Result<(Iovec, Option<Arc<RegisteredMemory>>), LinkError> {
        let kind = self.link.kind();
        if let Some(device) = device {
            let named = device.named(kind, piece).ok_or(LinkError::Unregistered)?;
            return Ok((named, Some(Arc::clone(device))));
        }
        let Some(staging) = self.channel.staging(place) else {
            return Ok((piece, None));
        };
        if let Some((named, registered)) = self.registrations.find(kind, piece) {
            return Ok((named, Some(registered)));
        }
        (self.count_staged)(piece.len() as u64);
        // SAFETY: a fragment fits into its slot of the mirror, and the former fragment there has
        // been received.
        let copy = unsafe { access::stage(&[piece], self.pool, staging) };
        Ok((copy, None))
    }
}

impl MessageMatching {
    /// The number of unfinished messages.
    pub(crate) fn pending(&self) -> usize {
        let peers = self.peers.values();
        self.posted.len()
            + peers
                .map(|p| p.sources().count() + p.receiving.len())
                .sum::<usize>()
    }

    /// An unfinished message, other than a receive that matches none yet.
    pub(crate) fn unfinished(&self) -> Option<&Arc<Completion>> {
        self.peers.values().find_map(|peer| {
            let mut sending = peer.sources().map(|source| &source.completion);
            let receiving = || peer.receiving.front().map(|target| &target.completion);
            sending.next().or_else(receiving)
        })
    }

    /// The deadlines of all unfinished messages.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        let posted = self.posted.iter().map(|posted| posted.target.due.deadline);
        posted.chain(self.peers.values().flat_map(|peer| {
            let sources = peer.sources().map(|s| s.due.deadline);
            sources.chain(peer.receiving.iter().map(|t| t.due.deadline))
        }))
    }

    /// A message that has missed its deadline: its description, the rank that it waits for, and its
    /// timeout.
    pub(crate) fn overdue(&self, now: Instant) -> Option<(String, Option<u32>, Duration)> {
        if let Some(posted) = self.posted.iter().find(|p| p.target.due.deadline <= now) {
            let operation = format!("receive (tag {})", posted.tag);
            return Some((operation, posted.from, posted.target.due.allowed));
        }
        self.peers.iter().find_map(|(rank, peer)| {
            let sending = peer.sources().map(|s| ("send", s.due));
            let receiving = peer.receiving.iter().map(|t| ("receive", t.due));
            let (direction, due) = sending
                .chain(receiving)
                .find(|(_, due)| due.deadline <= now)?;
            Some((
                format!("{direction} of a long message"),
                Some(*rank),
                due.allowed,
            ))
        })
    }

    /// Ends all unfinished messages with an error. Their memory is not used any more.
    pub(crate) fn fail(
        &mut self,
        links: &[Option<Arc<dyn Link>>],
        error: &Error,
        finished: &mut Finished,
    ) {
        let mut end = |completion: Arc<Completion>| finished.push((completion, Err(error.clone())));
        self.posted
            .drain(..)
            .for_each(|posted| end(posted.target.completion));
        for (rank, peer) in self.peers.drain() {
            for fragment in peer.in_flight {
                if let (Some(link), Some(ticket)) = (&links[rank as usize], fragment.ticket) {
                    link.cancel(ticket);
                }
                if let Some(source) = fragment.last {
                    end(source.completion);
                }
            }
            peer.offered
                .into_values()
                .for_each(|source| end(source.completion));
            peer.sending
                .into_iter()
                .for_each(|source| end(source.completion));
            peer.receiving
                .into_iter()
                .for_each(|target| end(target.completion));
        }
    }

    /// Whether a message waits for this rank, or might. Messages that are being sent to it do not:
    /// they complete, or the link ends.
    pub(crate) fn needs(&self, rank: u32) -> bool {
        let posted = self.posted.iter().any(|posted| posted.from == Some(rank));
        posted
            || self.peers.get(&rank).is_some_and(|peer| {
                !peer.offered.is_empty() || !peer.sending.is_empty() || !peer.receiving.is_empty()
            })
    }

    /// The ranks that messages are awaited from.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = u32> {
        self.posted.iter().filter_map(|posted| posted.from)
    }

    /// The ranks to or from which fragments are being sent.
    pub(crate) fn busy(&self) -> Vec<u32> {
        let busy = |peer: &PeerMessages| {
            !(peer.sending.is_empty() && peer.in_flight.is_empty() && peer.receiving.is_empty())
        };
        self.peers
            .iter()
            .filter(|(_, peer)| busy(peer))
            .map(|(rank, _)| *rank)
            .collect()
    }

    /// Whether a message may be sent eagerly.
    pub(crate) fn may_be_eager(&mut self, to: u32, bytes: u64) -> bool {
        let peer = self.peers.entry(to).or_default();
        peer.allowance.send_eagerly(bytes)
    }

    /// Offers a long message. Returns the message to send now, if any.
    pub(crate) fn offer(
        &mut self,
        (group, to): (u64, u32),
        tag: u64,
        source: SendSource,
    ) -> Option<ControlMessage> {
        let peer = self.peers.entry(to).or_default();
        peer.next_offer += 1;
        let (id, bytes) = (peer.next_offer, source.bytes);
        peer.offered.insert(id, source);
        let offer = peer.allowance.offer(OfferedMessage { tag, id, bytes });
        offer.map(|offer| offer_of(group, offer))
    }

    /// Receives a short message, or one that this rank sends to itself. Returns the answer, if any.
    pub(crate) fn whole(
        &mut self,
        (group, from): (u64, u32),
        tag: u64,
        bytes: &[u8],
        finished: &mut Finished,
    ) -> Option<ControlMessage> {
        let unclaimed = &mut self.peers.entry(from).or_default().unclaimed;
        unclaimed.add_eager(bytes.len());
        match self.claim(from, tag) {
            Some(target) => {
                (self.peers.entry(from).or_default().unclaimed).take_eager(bytes.len());
                deliver((group, from), tag, bytes, target, finished)
            }
            None => {
                self.arrive(from, tag, Arrived::Whole(bytes.to_vec()));
                None
            }
        }
    }

    /// Receives the offer of a long message. Returns the answer, if there is one yet.
    pub(crate) fn offered(
        &mut self,
        (group, from): (u64, u32),
        tag: u64,
        (id, bytes): (u64, u64),
        finished: &mut Finished,
    ) -> Option<ControlMessage> {
        match self.claim(from, tag) {
            Some(target) => Some(self.accept((group, from), (id, bytes), target, finished)),
            None => {
                self.peers.entry(from).or_default().unclaimed.add_offer();
                self.arrive(from, tag, Arrived::Offered { id, bytes });
                None
            }
        }
    }

    /// Returns an error if a peer has exceeded its limits for messages without a matching receive.
    pub(crate) fn check(&self, from: u32) -> Result<(), LinkError> {
        let peer = self.peers.get(&from);
        peer.map_or(Ok(()), |peer| peer.unclaimed.check())
    }

    /// Posts a receive. Returns an answer to send to a rank, if any.
    pub(crate) fn post(
        &mut self,
        group: u64,
        posted: Posted,
        finished: &mut Finished,
    ) -> Option<(u32, ControlMessage)> {
        let arrived = match posted.from {
            Some(from) => self
                .peers
                .get_mut(&from)
                .and_then(|peer| Some((from, peer.take_arrived(posted.tag)?))),
            None => self
                .peers
                .iter_mut()
                .find_map(|(rank, peer)| Some((*rank, peer.take_arrived(posted.tag)?))),
        };
        match arrived {
            Some((rank, Arrived::Whole(bytes))) => {
                let (tag, target) = (posted.tag, posted.target);
                deliver((group, rank), tag, &bytes, target, finished).map(|answer| (rank, answer))
            }
            Some((rank, Arrived::Offered { id, bytes })) => Some((
                rank,
                self.accept((group, rank), (id, bytes), posted.target, finished),
            )),
            None => {
                self.posted.push(posted);
                None
            }
        }
    }

    /// Handles a receiver's report that it has memory for a long message, and the amount of short
    /// ones that it has taken. Returns the next message to send to it, if any.
    pub(crate) fn ready(
        &mut self,
        (group, from): (u64, u32),
        id: u64,
        taken: u64,
    ) -> Option<ControlMessage> {
        let peer = self.peers.get_mut(&from)?;
        let source = peer.offered.remove(&id)?;
        source.completion.begins(0);
        peer.sending.push_back(source);
        peer.allowance.taken(taken);
        let next = peer.allowance.answered();
        next.map(|offer| offer_of(group, offer))
    }

    /// Handles a receiver's report that it expects another length for a long message. Returns the
    /// next message to send to it, if any.
    pub(crate) fn refused(
        &mut self,
        (group, from): (u64, u32),
        id: u64,
        expected: u64,
        finished: &mut Finished,
    ) -> Option<ControlMessage> {
        let peer = self.peers.get_mut(&from)?;
        let source = peer.offered.remove(&id)?;
        let error = wrong_length(from, expected, source.bytes);
        finished.push((source.completion, Err(error)));
        let next = peer.allowance.answered();
        next.map(|offer| offer_of(group, offer))
    }

    /// Records that the receiver of a short message, which has ended here, expects another length.
    pub(crate) fn unfit(&mut self, from: u32, sent: u64, expected: u64) {
        self.peers.entry(from).or_default().unfit = Some(wrong_length(from, expected, sent));
    }

    /// An error of the group, with an earlier length error reported by a lost rank.
    pub(crate) fn explained(&self, error: &Error) -> Error {
        let mut error = error.clone();
        if let Error::PeerLost {
            rank: Some(rank),
            detail,
            ..
        } = &mut error
            && let Some(complaint) = self.peers.get(rank).and_then(|peer| peer.unfit.as_ref())
        {
            *detail = format!("{detail}, after a {complaint}");
        }
        error
    }

    /// Moves fragments to and from one peer. True if anything moved.
    pub(crate) fn advance(
        &mut self,
        rank: u32,
        route: &Route<'_>,
        finished: &mut Finished,
    ) -> Result<bool, LinkError> {
        let Some(peer) = self.peers.get_mut(&rank) else {
            return Ok(false);
        };
        let received = peer.receive(rank, route, finished)?;
        let sent = peer.send(route, finished)?;
        Ok(received || sent)
    }

    fn claim(&mut self, from: u32, tag: u64) -> Option<ReceiveTarget> {
        let fits = |posted: &Posted| posted.tag == tag && posted.from.is_none_or(|f| f == from);
        let position = self.posted.iter().position(fits)?;
        Some(self.posted.remove(position).target)
    }

    fn arrive(&mut self, from: u32, tag: u64, message: Arrived) {
        self.peers
            .entry(from)
            .or_default()
            .arrived
            .push_back((tag, message));
    }

    fn accept(
        &mut self,
        (group, from): (u64, u32),
        (id, bytes): (u64, u64),
        target: ReceiveTarget,
        finished: &mut Finished,
    ) -> ControlMessage {
        if target.bytes != bytes {
            let expected = target.bytes;
            finished.push((target.completion, Err(wrong_length(from, expected, bytes))));
            return ControlMessage::Refused {
                group,
                id,
                expected,
            };
        }
        target.completion.set_source(from);
        let peer = self.peers.entry(from).or_default();
        peer.receiving.push_back(target);
        let taken = peer.unclaimed.taken();
        ControlMessage::Ready { group, id, taken }
    }
}

impl PeerMessages {
    /// The long messages to the peer that are not completely sent.
    fn sources(&self) -> impl Iterator<Item = &SendSource> {
        let last = self
            .in_flight
            .iter()
            .filter_map(|fragment| fragment.last.as_ref());
        self.offered.values().chain(&self.sending).chain(last)
    }

    /// Removes the first message with this tag that has no matching receive.
    fn take_arrived(&mut self, tag: u64) -> Option<Arrived> {
        let position = self.arrived.iter().position(|(other, _)| *other == tag)?;
        let (_, arrived) = self.arrived.remove(position)?;
        match &arrived {
            Arrived::Whole(bytes) => self.unclaimed.take_eager(bytes.len()),
            Arrived::Offered { .. } => self.unclaimed.take_offer(),
        }
        Some(arrived)
    }

    fn receive(
        &mut self,
        rank: u32,
        route: &Route<'_>,
        finished: &mut Finished,
    ) -> Result<bool, LinkError> {
        let words = route.channel.words();
        let sent = route
            .pool
            .word(words + route.layout.fragments_sent())
            .load(Ordering::Acquire);
        let before = self.fragments_taken;
        while self.fragments_taken < sent {
            let Some(target) = self.receiving.front() else {
                return Err(LinkError::Protocol("a fragment without a receive".into()));
            };
            let slot = (self.fragments_taken % route.layout.fragments as u64) as usize;
            let bytes = FRAGMENT_BYTES.min(target.bytes - self.received);
            let from = route.channel.at(route.layout.fragment(slot));
            let to = target.memory.wrapping_add(self.received as usize);
            // SAFETY: the fragment is in this rank's channel and was signalled; `Group::receive`
            // requires memory for the whole message.
            unsafe { access::take(route.pool, from, to, bytes) };
            self.received += bytes;
            self.fragments_taken += 1;
            if self.received == target.bytes {
                self.received = 0;
                if let Some(target) = self.receiving.pop_front() {
                    target.completion.set_source(rank);
                    finished.push((target.completion, Ok(())));
                }
            }
        }
        if self.fragments_taken > before {
            let Some(remote) = &route.channel.remote else {
                return Ok(true);
            };
            let offset = remote.words() + route.layout.fragments_taken();
            let signal = Signal {
                offset,
                value: self.fragments_taken,
            };
            // A sender that has left needs no credit; a broken link is detected when it is read.
            let _ = route.link.signal(signal);
        }
        Ok(self.fragments_taken > before)
    }

    fn send(&mut self, route: &Route<'_>, finished: &mut Finished) -> Result<bool, LinkError> {
        let Some(remote) = &route.channel.remote else {
            return Ok(false);
        };
        let word = route.channel.words() + route.layout.fragments_taken();
        let taken = route.pool.word(word).load(Ordering::Acquire);
        let mut moved = self.remove_completed(route, finished)?;
        while let Some(source) = self.sending.front()
            && self.fragments_sent < taken.saturating_add(route.layout.fragments as u64)
        {
            let slot = (self.fragments_sent % route.layout.fragments as u64) as usize;
            let bytes = FRAGMENT_BYTES.min(source.bytes - self.sent);
            let place = route.layout.fragment(slot);
            let start = source.memory.wrapping_add(self.sent as usize);
            // SAFETY: `Group::send` requires that the message stays alive and unchanged.
            let piece = unsafe { access::source(start, bytes) };
            let (piece, registered) = route.readable(piece, source.device.as_ref(), place)?;
            let signal = Signal {
                offset: remote.words() + route.layout.fragments_sent(),
                value: self.fragments_sent + 1,
            };
            let (pool, offset) = (RegionKey::POOL, remote.channel(place));
            let ticket = match route.link.put(pool, offset, &[piece], Some(signal))? {
                Submission::Full => break,
                Submission::Done => None,
                Submission::UnderWay(ticket) => Some(ticket),
            };
            moved = true;
            self.sent += bytes;
            self.fragments_sent += 1;
            let mut last = None;
            if self.sent == source.bytes {
                self.sent = 0;
                last = self.sending.pop_front();
            }
            self.in_flight.push_back(Fragment {
                ticket,
                last,
                _registered: registered,
            });
        }
        self.remove_completed(route, finished)?;
        Ok(moved)
    }

    /// Removes completed fragments, and ends the messages whose last fragments they were. True if
    /// there were any.
    fn remove_completed(
        &mut self,
        route: &Route<'_>,
        finished: &mut Finished,
    ) -> Result<bool, LinkError> {
        let before = self.in_flight.len();
        while let Some(fragment) = self.in_flight.front() {
            if let Some(ticket) = fragment.ticket
                && !route.link.completed(ticket)?
            {
                break;
            }
            let last = self
                .in_flight
                .pop_front()
                .and_then(|fragment| fragment.last);
            finished.extend(last.map(|source| (source.completion, Ok(()))));
        }
        Ok(self.in_flight.len() < before)
    }
}

fn offer_of(group: u64, offer: OfferedMessage) -> ControlMessage {
    let OfferedMessage { tag, id, bytes } = offer;
    ControlMessage::Offer {
        group,
        tag,
        id,
        bytes,
    }
}

/// Ends a receive with a short message. Returns the answer if its length does not match.
fn deliver(
    (group, from): (u64, u32),
    tag: u64,
    bytes: &[u8],
    target: ReceiveTarget,
    finished: &mut Finished,
) -> Option<ControlMessage> {
    let (sent, expected) = (bytes.len() as u64, target.bytes);
    if sent != expected {
        finished.push((target.completion, Err(wrong_length(from, expected, sent))));
        return Some(ControlMessage::Unfit {
            group,
            tag,
            sent,
            expected,
        });
    }
    // SAFETY: `Group::receive` requires memory for the whole message, and the lengths are equal.
    unsafe { access::fill(target.memory, bytes) };
    target.completion.set_source(from);
    finished.push((target.completion, Ok(())));
    None
}

fn wrong_length(peer: u32, expected: u64, sent: u64) -> Error {
    Error::Config(format!(
        "point-to-point message with rank {peer}: {sent} bytes are sent but the receiver expects {expected}"
    ))
}
