//! A put whose payload is sent from the caller's memory.

use std::collections::VecDeque;
use std::ops::Range;

use weft_transport::{Iovec, RegionKey, Signal, Ticket};

use crate::frame::{Frame, HEADER_BYTES};
use crate::slices::Slices;

/// The most payload in one frame of a large put: urgent operations wait at most for the end of one.
const FRAME_PAYLOAD_MAX: u64 = 64 << 10;
const FRAME_MAX: u64 = FRAME_PAYLOAD_MAX + HEADER_BYTES as u64;
static ZEROS: [u8; 32 << 10] = [0; 32 << 10];

/// A put whose payload is being sent, as frames of at most [`FRAME_PAYLOAD_MAX`]: other frames can
/// be sent in between.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) ticket: Ticket,
    payload: Payload,
    /// Bytes of payload.
    bytes: u64,
    /// The headers of its frames, one behind the other.
    headers: Vec<u8>,
    /// Bytes of its frames, headers and payload, that are sent.
    pub(crate) sent: u64,
    /// Frames that are sent behind the put. The first is its signal, if it has one. A cancelled put
    /// has a fence without effect in its place, so that positions in earlier fences stay valid.
    pub(crate) behind: VecDeque<u8>,
    signals: bool,
}

/// Where the payload is.
#[derive(Debug)]
enum Payload {
    /// In the caller's memory.
    Lent(Vec<Iovec>),
    /// A copy, from this byte of the payload on.
    Copied(u64, Vec<u8>),
    /// Nowhere: zeros are sent instead.
    Given,
}

impl Put {
    /// A put into this place; `behind` is empty.
    pub(crate) fn new(
        ticket: Ticket,
        (region, offset): (RegionKey, u64),
        pieces: &[Iovec],
        signal: Option<Signal>,
        mut behind: VecDeque<u8>,
    ) -> Self {
        if let Some(signal) = signal {
            behind.extend(Frame::Signal(signal).encode());
        }
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let starts = (0..bytes).step_by(FRAME_PAYLOAD_MAX as usize);
        let headers = starts.flat_map(|start| {
            let end = bytes.min(start + FRAME_PAYLOAD_MAX);
            Frame::put(region, offset + start..offset + end, None).encode()
        });
        Put {
            ticket,
            payload: Payload::Lent(pieces.to_vec()),
            bytes,
            headers: headers.collect(),
            sent: 0,
            behind,
            signals: signal.is_some(),
        }
    }

    /// Bytes of its frames that are not sent.
    pub(crate) fn left(&self) -> u64 {
        self.bytes + self.headers.len() as u64 - self.sent
    }

    /// How many bytes are left until the end of the frame that is being sent.
    pub(crate) fn within_frame(&self) -> u64 {
        match self.sent % FRAME_MAX {
            0 => 0,
            sent => self.left().min(FRAME_MAX - sent),
        }
    }

    /// Ends the reading of the caller's memory: zeros are sent in place of the rest, and no signal.
    pub(crate) fn cancel(&mut self) {
        if std::mem::take(&mut self.signals) {
            for (byte, new) in self.behind.iter_mut().zip(Frame::NOTHING.encode()) {
                *byte = new;
            }
        }
        self.payload = Payload::Given;
    }

    /// Whether it still reads the caller's memory.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.payload, Payload::Lent(_))
    }

    /// Ends the reading of the caller's memory, without a copy.
    pub(crate) fn let_go(&mut self) {
        self.payload = Payload::Given;
    }

    /// Copies the payload that is in this range of its frames. The caller's memory is not read any
    /// more.
    pub(crate) fn copy(&mut self, frames: Range<u64>, mut copy: Vec<u8>) {
        let Payload::Lent(pieces) = &self.payload else {
            return;
        };
        let range = self.payload_before(frames.start)..self.payload_before(frames.end);
        copy.clear();
        for part in parts(pieces, &range) {
            copy.extend_from_slice(part);
        }
        self.payload = Payload::Copied(range.start, copy);
    }

    /// The memory of its copy.
    pub(crate) fn into_copy(self) -> Option<Vec<u8>> {
        match self.payload {
            Payload::Copied(_, copy) => Some(copy),
            Payload::Lent(_) | Payload::Given => None,
        }
    }

    /// Adds the bytes that are to be sent next, at most as many as the limit.
    pub(crate) fn collect<'a>(&'a self, slices: &mut Slices<'a>, limit: u64) {
        self.collect_range(slices, self.sent..self.sent + limit.min(self.left()));
    }

    /// Adds a range of its frames.
    pub(crate) fn collect_range<'a>(&'a self, slices: &mut Slices<'a>, range: Range<u64>) {
        let header = HEADER_BYTES as u64;
        let mut at = range.start;
        while at < range.end && !slices.full {
            let (frame, within) = (at / FRAME_MAX, at % FRAME_MAX);
            let left = range.end - at;
            if let Some(payload) = within.checked_sub(header) {
                let first = frame * FRAME_PAYLOAD_MAX + payload;
                let last = self.bytes.min((frame + 1) * FRAME_PAYLOAD_MAX);
                let last = last.min(first + left);
                self.collect_payload(slices, first..last);
                at += last - first;
            } else {
                let start = frame * header + within;
                let end = ((frame + 1) * header).min(start + left);
                slices.add(&self.headers[start as usize..end as usize]);
                at += end - start;
            }
        }
    }

    fn collect_payload<'a>(&'a self, slices: &mut Slices<'a>, range: Range<u64>) {
        match &self.payload {
            Payload::Lent(pieces) => parts(pieces, &range).for_each(|part| slices.add(part)),
            Payload::Copied(start, copy) => {
                slices.add(&copy[(range.start - start) as usize..(range.end - start) as usize]);
            }
            Payload::Given => {
                let mut left = range.end - range.start;
                while left > 0 && !slices.full {
                    let zeros = left.min(ZEROS.len() as u64);
                    slices.add(&ZEROS[..zeros as usize]);
                    left -= zeros;
                }
            }
        }
    }

    /// Bytes of payload in the first bytes of its frames.
    fn payload_before(&self, frames: u64) -> u64 {
        let within = (frames % FRAME_MAX).saturating_sub(HEADER_BYTES as u64);
        (frames / FRAME_MAX * FRAME_PAYLOAD_MAX + within).min(self.bytes)
    }
}

/// A range of the bytes of several pieces.
fn parts<'a>(pieces: &'a [Iovec], range: &Range<u64>) -> impl Iterator<Item = &'a [u8]> {
    let (first, last) = (range.start, range.end);
    let mut start = 0;
    pieces.iter().filter_map(move |piece| {
        let end = start + piece.len() as u64;
        let (from, to) = (first.max(start), last.min(end));
        let at = piece
            .start()
            .wrapping_add(from.saturating_sub(start) as usize);
        start = end;
        // SAFETY: the piece's maker has promised that it can be read until the put is complete or
        // cancelled: then it is not among the pieces any more.
        (from < to).then(|| unsafe { std::slice::from_raw_parts(at, (to - from) as usize) })
    })
}
