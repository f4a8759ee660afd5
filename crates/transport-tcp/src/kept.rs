//! Sent bytes that the peer's program has not confirmed yet: they are sent again if the connection
//! is made anew.
//!
//! [Note: Kept bytes] A byte counts as arrived when the peer's program has it: kernels and proxies
//! lose what they have acknowledged. Frames that were copied to be sent are kept. Of a large put
//! the caller's memory is named, and read again if it must be, until the caller asks whether the
//! put is complete: then it takes the memory back, and what is not confirmed is copied. Where that
//! would take too much time, it is let go, and the connection cannot be made anew until the peer
//! has confirmed it.
#![cfg_attr(not(test), forbid(unsafe_code))]

use std::collections::VecDeque;
use std::ops::Range;

use weft_transport::Ticket;

use crate::class::Class;
use crate::handshake::Position;
use crate::put::Put;
use crate::resumption::Resumption;
use crate::slices::Slices;

/// Copies whose memory is used again for the next ones, and the most bytes of one.
const SPARE_MAX: usize = 4;
const SPARE_BYTES_MAX: usize = 4 << 20;
/// An empty queue of more bytes is freed.
const IDLE_BYTES_MAX: usize = 256 << 10;

/// Sent bytes of one kind, in the order in which they were sent.
#[derive(Debug)]
enum Part {
    /// Of copied frames.
    Copied(u64),
    /// Of the frames of a put: the first of them, and how many.
    Put {
        ticket: Ticket,
        start: u64,
        bytes: u64,
    },
}

/// A put all of whose frames are sent.
#[derive(Debug)]
struct SentPut {
    put: Put,
    /// The position behind its last frame.
    end: u64,
}

/// The sent bytes of one connection. A position is a number of bytes since the link was made.
///
/// Invariants: `parts` are the bytes between `confirmed` and `sent`, and `copied` holds those of
/// [`Part::Copied`], if anything is kept. `confirmed <= again <= sent`.
#[derive(Default, Debug)]
pub(crate) struct Kept {
    resumption: Resumption,
    parts: VecDeque<Part>,
    copied: VecDeque<u8>,
    /// Not entirely confirmed.
    puts: VecDeque<SentPut>,
    /// How many of them still read their callers' memory.
    lent: usize,
    spare: Vec<Vec<u8>>,
    /// The peer's program has everything up to here.
    confirmed: u64,
    /// Everything from here on is kept.
    whole_from: u64,
    /// The next byte to be sent again; `sent` if there is none.
    again: u64,
    /// The next byte to be sent for the first time.
    sent: u64,
    /// The connection is being made anew: everything is kept, at any cost.
    pub(crate) interrupted: bool,
}

impl Kept {
    pub(crate) fn new(resumption: Resumption) -> Self {
        Self {
            resumption,
            ..Self::default()
        }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// The position from which on the connection can be made anew.
    pub(crate) fn start(&self) -> u64 {
        match self.resumption.keeps() {
            true => self.whole_from.max(self.confirmed),
            false => self.sent,
        }
    }

    /// Bytes that are to be sent again.
    pub(crate) fn left(&self) -> u64 {
        self.sent - self.again
    }

    /// Keeps the first bytes of a queue, which are being sent.
    pub(crate) fn keep(&mut self, queue: &VecDeque<u8>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.advance(bytes as u64);
        if !self.resumption.keeps() {
            return;
        }
        let (front, back) = queue.as_slices();
        let first = bytes.min(front.len());
        self.copied.extend(&front[..first]);
        self.copied.extend(&back[..bytes - first]);
        match self.parts.back_mut() {
            Some(Part::Copied(last)) => *last += bytes as u64,
            _ => self.parts.push_back(Part::Copied(bytes as u64)),
        }
    }

    /// Keeps the next bytes of a put's frames, which are being sent.
    pub(crate) fn keep_frames(&mut self, put: &Put, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.advance(bytes);
        if !self.resumption.keeps() {
            return;
        }
        match self.parts.back_mut() {
            Some(Part::Put {
                ticket,
                bytes: last,
                ..
            }) if *ticket == put.ticket => *last += bytes,
            _ => self.parts.push_back(Part::Put {
                ticket: put.ticket,
                start: put.sent,
                bytes,
            }),
        }
    }

    /// Keeps a put all of whose frames are sent.
    pub(crate) fn keep_put(&mut self, put: Put) {
        if self.resumption.keeps() {
            self.lent += usize::from(put.is_lent());
            let end = self.sent;
            self.puts.push_back(SentPut { put, end });
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.sent += bytes;
        self.again = self.sent;
    }

    /// The lowest ticket of a class whose put still reads its caller's memory, of those that are
    /// sent.
    pub(crate) fn first_lent(&self, class: Class) -> Option<Ticket> {
        if self.lent == 0 {
            return None;
        }
        let mut puts = self.puts.iter().map(|sent| &sent.put);
        let lent = puts.find(|put| put.is_lent() && Class::of(put.ticket) == class);
        lent.map(|put| put.ticket)
    }

    /// Ends the reading of a sent put's memory: copies what is not confirmed, or lets it go.
    pub(crate) fn give_back(&mut self, ticket: Ticket) {
        // Mostly the last one.
        let mut puts = self.puts.iter();
        if let Some(at) = puts.rposition(|sent| sent.put.ticket == ticket) {
            self.give_back_at(at);
        }
    }

    pub(crate) fn give_back_all(&mut self) {
        (0..self.puts.len()).for_each(|at| self.give_back_at(at));
    }

    fn give_back_at(&mut self, at: usize) {
        let SentPut { put, end } = &self.puts[at];
        if !put.is_lent() {
            return;
        }
        self.lent -= 1;
        let (range, end) = (self.unconfirmed(put), *end);
        let put = &mut self.puts[at].put;
        if self.interrupted || self.resumption.allows_copy(range.end - range.start) {
            put.copy(range, self.spare.pop().unwrap_or_default());
        } else {
            put.let_go();
            self.whole_from = self.whole_from.max(end);
        }
    }

    /// The bytes of a put's frames that are not confirmed.
    fn unconfirmed(&self, put: &Put) -> Range<u64> {
        let mut start = put.sent;
        for part in self.parts.iter().rev() {
            if start == 0 {
                break;
            }
            match part {
                Part::Put {
                    ticket,
                    start: first,
                    ..
                } if *ticket == put.ticket => start = *first,
                _ => {}
            }
        }
        start..put.sent
    }

    /// Drops what the peer's program has.
    pub(crate) fn confirm(&mut self, position: u64) -> Result<(), &'static str> {
        if position > self.sent {
            return Err("a confirmation of bytes that were not sent");
        }
        let mut left = position.saturating_sub(self.confirmed);
        self.confirmed = self.confirmed.max(position);
        self.again = self.again.max(position);
        while left > 0
            && let Some(part) = self.parts.front_mut()
        {
            let (Part::Copied(bytes) | Part::Put { bytes, .. }) = part;
            let gone = left.min(*bytes);
            *bytes -= gone;
            left -= gone;
            let over = *bytes == 0;
            match part {
                Part::Copied(_) => drop(self.copied.drain(..gone as usize)),
                Part::Put { start, .. } => *start += gone,
            }
            if over {
                self.parts.pop_front();
            }
        }
        if self.copied.is_empty() && self.copied.capacity() > IDLE_BYTES_MAX {
            self.copied = VecDeque::new();
        }
        while (self.puts.front()).is_some_and(|sent| sent.end <= self.confirmed) {
            self.lent -= usize::from(self.puts[0].put.is_lent());
            let copy = (self.puts.pop_front()).and_then(|sent| sent.put.into_copy());
            let reusable =
                |copy: &Vec<u8>| self.spare.len() < SPARE_MAX && copy.capacity() <= SPARE_BYTES_MAX;
            if let Some(copy) = copy.filter(reusable) {
                self.spare.push(copy);
            }
        }
        Ok(())
    }

    /// Continues on a new connection: the peer's program has everything up to this position. False
    /// if what follows is not kept any more.
    pub(crate) fn resume(&mut self, position: u64) -> bool {
        let position = match position {
            Position::ALL => self.sent,
            position => position,
        };
        let possible = (self.start()..=self.sent).contains(&position);
        if possible {
            // Cannot fail: see above.
            let _ = self.confirm(position);
            self.again = position;
            self.interrupted = false;
        }
        possible
    }

    /// Adds the bytes that are to be sent again. `sending` finds a put that is not entirely sent.
    pub(crate) fn collect<'a>(
        &'a self,
        slices: &mut Slices<'a>,
        sending: impl Fn(Ticket) -> Option<&'a Put>,
    ) {
        let (mut position, mut copied) = (self.confirmed, 0);
        for part in &self.parts {
            if slices.full {
                return;
            }
            let (Part::Copied(bytes) | Part::Put { bytes, .. }) = part;
            let skipped = self.again.saturating_sub(position).min(*bytes);
            match part {
                Part::Copied(_) => {
                    let range = copied + skipped as usize..copied + *bytes as usize;
                    slices.add_part(&self.copied, range);
                    copied += *bytes as usize;
                }
                Part::Put { ticket, start, .. } => {
                    let mut sent = self.puts.iter().map(|sent| &sent.put);
                    let put = sent.find(|put| put.ticket == *ticket);
                    let put = put.or_else(|| sending(*ticket));
                    let put = put.expect("a put is kept until it is confirmed");
                    put.collect_range(slices, start + skipped..start + bytes);
                }
            }
            position += bytes;
        }
    }

    /// Records that this many of the bytes from [`Kept::collect`] were sent.
    pub(crate) fn consume(&mut self, bytes: u64) {
        self.again += bytes;
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::{Iovec, RegionKey};

    use super::*;

    const BYTES: usize = 100_000;

    fn put(number: u64, memory: &[u8]) -> Put {
        // SAFETY: the tests keep the memory.
        let piece = unsafe { Iovec::new(memory.as_ptr(), memory.len()) };
        let ticket = Class::Ordinary.ticket(0, number);
        Put::new(
            ticket,
            (RegionKey::POOL, 0),
            &[piece],
            None,
            VecDeque::new(),
        )
    }

    /// Sends a whole put.
    fn send(kept: &mut Kept, mut put: Put) -> Ticket {
        let (ticket, bytes) = (put.ticket, put.left());
        kept.keep_frames(&put, bytes);
        put.sent += bytes;
        kept.keep_put(put);
        ticket
    }

    /// Everything that is sent again.
    fn again(kept: &mut Kept) -> Vec<u8> {
        let mut bytes = Vec::new();
        while kept.left() > 0 {
            let mut slices = Slices::default();
            kept.collect(&mut slices, |_| None);
            let before = bytes.len();
            (slices.filled().iter()).for_each(|slice| bytes.extend_from_slice(slice));
            kept.consume((bytes.len() - before) as u64);
        }
        bytes
    }

    #[test]
    fn put_is_sent_again_from_a_copy_of_what_is_not_confirmed() {
        let mut kept = Kept::new(Resumption::On);
        let mut memory: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
        let ticket = send(&mut kept, put(1, &memory));
        assert!(kept.resume(0));
        let all = again(&mut kept);
        let confirmed = 70_000;
        kept.confirm(confirmed).unwrap();
        kept.give_back(ticket);
        assert_eq!(kept.first_lent(Class::Ordinary), None);
        memory.fill(0xEE);
        for position in [confirmed, confirmed + 1, kept.sent() - 1, kept.sent()] {
            assert!(kept.resume(position));
            assert_eq!(again(&mut kept), all[position as usize..]);
        }
        assert!(!kept.resume(confirmed), "it was confirmed to the end");
    }

    #[test]
    fn nothing_resumes_before_what_was_let_go() {
        let mut kept = Kept::new(Resumption::On);
        let memory = vec![7; BYTES];
        let queue = VecDeque::from(vec![1; 100]);
        kept.keep(&queue, 100);
        let ticket = send(&mut kept, put(1, &memory));
        let end = kept.sent();
        // As if copying it took too long.
        kept.resumption = Resumption::Off;
        kept.give_back(ticket);
        kept.resumption = Resumption::On;
        kept.keep(&queue, 100);
        assert_eq!(kept.start(), end);
        assert!(!kept.resume(50));
        assert!(!kept.resume(end - 1));
        assert!(kept.resume(end));
        assert_eq!(again(&mut kept), [1; 100]);
    }

    #[test]
    fn nothing_is_let_go_while_a_connection_is_made_anew() {
        let mut kept = Kept::new(Resumption::On);
        let mut memory = vec![7; BYTES];
        let ticket = send(&mut kept, put(1, &memory));
        kept.interrupted = true;
        kept.resumption = Resumption::Auto;
        while kept.resumption.allows_copy(1 << 20) {}
        kept.give_back(ticket);
        memory.fill(0xEE);
        assert!(kept.resume(0));
        assert!(!again(&mut kept).contains(&0xEE));
    }

    #[test]
    fn confirmed_bytes_are_dropped() {
        let mut kept = Kept::new(Resumption::On);
        let memory = vec![7; BYTES];
        let queue = VecDeque::from(vec![1; 100]);
        for number in 1..100 {
            kept.keep(&queue, 100);
            let ticket = send(&mut kept, put(number, &memory));
            if number % 2 == 0 {
                kept.give_back(ticket);
            }
            kept.confirm(kept.sent() - 50).unwrap();
            assert!(kept.parts.len() <= 2 && kept.puts.len() <= 1 && kept.copied.len() <= 200);
        }
        let sent = kept.sent();
        kept.confirm(sent).unwrap();
        assert!(kept.parts.is_empty() && kept.puts.is_empty() && kept.copied.is_empty());
        assert_eq!(kept.lent, 0);
        assert!(kept.confirm(sent + 1).is_err());
        // A confirmation that comes twice.
        kept.confirm(sent - 1).unwrap();
        assert_eq!(kept.confirmed(), sent);
    }
}
