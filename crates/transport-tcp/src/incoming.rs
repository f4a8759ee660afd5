//! The receiving half of a link: parsing of untrusted frames, and placement of payloads in their
//! regions.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_transport::{
    Grants, IovecMut, LinkError, Redirection, RegionKey, Regions, Signal, failed,
};

use crate::broken::{broken_by, is_final};
use crate::frame::{Frame, HEADER_BYTES};
use crate::places::PeerPlaces;

const STAGE_BYTES: usize = 64 << 10;

/// The number of bytes read to the stage where a longer payload may follow, which should be
/// received directly at its place.
const BEFORE_PAYLOAD_BYTES: usize = 4 << 10;

/// The result of a call to [`TcpIncoming::step`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceiveProgress {
    /// A message is complete.
    Message,
    /// This many bytes arrived from the connection, all that were available.
    Drained(usize),
    /// This many bytes arrived from the connection; there may be more.
    Read(usize),
}

/// The meaning of the next bytes.
#[derive(Debug)]
enum Expecting {
    Header,
    /// The rest of a put: this range, unless its grant was revoked.
    Payload {
        region: RegionKey,
        range: Range<u64>,
        wanted: bool,
        signal: Option<Signal>,
    },
    /// The rest of a message of this total length.
    Message {
        bytes: usize,
        so_far: Vec<u8>,
    },
}

/// A message, and the positions that the link's other connections must reach before it is
/// delivered.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct FencedMessage {
    pub(crate) bytes: Vec<u8>,
    pub(crate) behind: Vec<u64>,
}

/// The receiving half of a connection.
///
/// Invariants: only granted ranges are written. The bytes in `stage[start..end]` have arrived from
/// the connection and are not parsed yet; after each step that is not [`ReceiveProgress::Message`],
/// they are fewer than the next item needs.
#[derive(Debug)]
pub(crate) struct TcpIncoming {
    places: PeerPlaces,
    stage: Box<[u8]>,
    start: usize,
    end: usize,
    expecting: Expecting,
    /// Bytes received from the connection.
    read: u64,
    /// The positions that the link's other connections must reach before the next message, by
    /// connection. Empty for a link of one connection.
    fences: Vec<u64>,
    /// Complete messages that were not delivered yet.
    pub(crate) messages: VecDeque<FencedMessage>,
    /// Whether a signal was stored since this was last reset.
    pub(crate) signalled: bool,
    /// Whether the peer has sent a goodbye.
    pub(crate) goodbye: bool,
    /// The position up to which the peer's program has what was sent to it.
    pub(crate) confirmed: u64,
}

impl TcpIncoming {
    /// `others` is the number of further connections of the link.
    pub(crate) fn new(regions: Arc<Regions>, others: usize) -> Self {
        Self {
            places: PeerPlaces::new(Grants::new(regions)),
            stage: vec![0; STAGE_BYTES].into(),
            start: 0,
            end: 0,
            expecting: Expecting::Header,
            read: 0,
            fences: vec![0; others],
            messages: VecDeque::new(),
            signalled: false,
            goodbye: false,
            confirmed: 0,
        }
    }

    pub(crate) fn grant(&mut self, region: RegionKey, range: Range<u64>) {
        self.places.grants.grant(region, range);
    }

    /// The position up to which everything is parsed, in bytes.
    pub(crate) fn position(&self) -> u64 {
        self.read - (self.end - self.start) as u64
    }

    /// The position up to which everything was read, in bytes.
    pub(crate) fn read_position(&self) -> u64 {
        self.read
    }

    /// Revokes a grant. After this returns, nothing is written there any more.
    pub(crate) fn revoke(&mut self, region: RegionKey, range: Range<u64>) {
        if let Expecting::Payload {
            region: into,
            range: coming,
            wanted,
            ..
        } = &mut self.expecting
            && *into == region
            && coming.start < range.end
            && range.start < coming.end
        {
            *wanted = false;
        }
        self.places.grants.revoke(region, range);
    }

    /// See [`weft_transport::Redirections::redirect`].
    pub(crate) fn redirect(&mut self, name: Redirection, place: (RegionKey, u64), into: IovecMut) {
        self.places.redirect(name, place, into);
    }

    /// See [`weft_transport::Redirections::take_back`].
    pub(crate) fn take_back(&mut self, name: Redirection) -> Vec<Range<u64>> {
        self.places.take_back(name)
    }

    /// Parses the bytes received so far, up to the end of a message; then, if they are used up,
    /// reads once more. The connection alone has failed, and not the link, after [`LinkError::Io`].
    pub(crate) fn step(
        &mut self,
        connection: &mut impl Read,
    ) -> Result<ReceiveProgress, LinkError> {
        if self.parse()? {
            return Ok(ReceiveProgress::Message);
        }
        if self.goodbye {
            return Err(LinkError::Left);
        }
        let (bytes, room) = match self.read(connection) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(ReceiveProgress::Drained(0));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Ok(ReceiveProgress::Read(0));
            }
            Err(error) => {
                let error = failed("readv", error);
                return Err(match is_final(&error) {
                    true => LinkError::Gone(broken_by(&error)),
                    false => LinkError::Io(error),
                });
            }
        };
        self.read += bytes as u64;
        if bytes == 0 {
            return Err(LinkError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        if self.parse()? {
            return Ok(ReceiveProgress::Message);
        }
        if self.goodbye {
            return Err(LinkError::Left);
        }
        Ok(if bytes < room {
            ReceiveProgress::Drained(bytes)
        } else {
            ReceiveProgress::Read(bytes)
        })
    }

    /// Reads the expected bytes into their place and further ones into the stage. Returns the
    /// number of bytes read and the room that there was.
    fn read(&mut self, connection: &mut impl Read) -> io::Result<(usize, usize)> {
        self.make_room();
        let staged = self.staged_max();
        let free = &mut self.stage[self.end..staged];
        let Expecting::Payload {
            region,
            range,
            wanted: true,
            ..
        } = &mut self.expecting
        else {
            let (room, bytes) = (free.len(), connection.read(free)?);
            self.end += bytes;
            return Ok((bytes, room));
        };
        let (mut direct, mut room) = (0, 0);
        let read = self.places.fill(*region, range, |place| {
            (direct, room) = (place.len(), place.len() + free.len());
            connection.read_vectored(&mut [IoSliceMut::new(place), IoSliceMut::new(free)])
        });
        let Some(bytes) = read.transpose()? else {
            // The region was withdrawn.
            self.discard_rest();
            return Err(io::ErrorKind::Interrupted.into());
        };
        let direct = bytes.min(direct);
        range.start += direct as u64;
        self.end += bytes - direct;
        Ok((bytes, room))
    }

    /// The limit up to which the next read fills the stage. A header or a long payload is mostly
    /// followed by a long payload.
    fn staged_max(&self) -> usize {
        let payload = match &self.expecting {
            Expecting::Header => true,
            Expecting::Payload { range, .. } => {
                range.end - range.start > BEFORE_PAYLOAD_BYTES as u64
            }
            Expecting::Message { .. } => false,
        };
        match payload {
            true => (self.end + BEFORE_PAYLOAD_BYTES).min(STAGE_BYTES),
            false => STAGE_BYTES,
        }
    }

    /// Discards the rest of the payload as it arrives.
    fn discard_rest(&mut self) {
        if let Expecting::Payload { wanted, .. } = &mut self.expecting {
            *wanted = false;
        }
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.stage.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Parses the stage, up to the end of a message; true if there is one.
    fn parse(&mut self) -> Result<bool, LinkError> {
        while !self.goodbye {
            match &mut self.expecting {
                Expecting::Header => {
                    let Some(header) = self.stage[self.start..self.end].first_chunk() else {
                        return Ok(false);
                    };
                    let frame = Frame::decode(header).map_err(protocol)?;
                    self.start += HEADER_BYTES;
                    self.begin(frame)?;
                }
                Expecting::Payload { .. } => {
                    if !self.take_payload()? {
                        return Ok(false);
                    }
                }
                Expecting::Message { bytes, so_far } => {
                    let taken = (*bytes - so_far.len()).min(self.end - self.start);
                    so_far.extend_from_slice(&self.stage[self.start..self.start + taken]);
                    self.start += taken;
                    if so_far.len() < *bytes {
                        return Ok(false);
                    }
                    self.messages.push_back(FencedMessage {
                        bytes: std::mem::take(so_far),
                        behind: self.fences.clone(),
                    });
                    self.expecting = Expecting::Header;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn begin(&mut self, frame: Frame) -> Result<(), LinkError> {
        match frame {
            Frame::Put {
                region,
                range,
                signal,
            } => {
                let region = RegionKey(region.into());
                self.expecting = Expecting::Payload {
                    wanted: self.places.grants.allow(region, &range)?,
                    region,
                    range,
                    signal,
                };
            }
            Frame::Signal(signal) => self.store(signal)?,
            Frame::Message { bytes } => {
                let so_far = Vec::with_capacity(bytes);
                self.expecting = Expecting::Message { bytes, so_far };
            }
            Frame::Goodbye => self.goodbye = true,
            Frame::Confirmation { position } => self.confirmed = self.confirmed.max(position),
            Frame::Fence { connection: 0, .. } => {}
            Frame::Fence {
                connection,
                position,
            } => match self.fences.get_mut(connection as usize - 1) {
                Some(fence) => *fence = position,
                None => return Err(protocol("a fence for a connection that does not exist")),
            },
        }
        Ok(())
    }

    /// Moves staged bytes to their place; true if the payload is complete.
    fn take_payload(&mut self) -> Result<bool, LinkError> {
        let Expecting::Payload {
            region,
            range,
            wanted,
            signal,
        } = &mut self.expecting
        else {
            return Ok(true);
        };
        let left = range.end - range.start;
        let taken = left.min((self.end - self.start) as u64);
        let end = range.start + taken;
        while *wanted && range.start < end {
            let staged = &self.stage[self.start..];
            let filled = self.places.fill(*region, &(range.start..end), |place| {
                place.copy_from_slice(&staged[..place.len()]);
                Ok::<usize, LinkError>(place.len())
            });
            match filled.transpose()? {
                Some(bytes) => {
                    self.start += bytes;
                    range.start += bytes as u64;
                }
                None => *wanted = false,
            }
        }
        // Discarded bytes are skipped.
        self.start += (end - range.start) as usize;
        range.start = end;
        if range.start < range.end {
            return Ok(false);
        }
        let signal = signal.take();
        self.expecting = Expecting::Header;
        signal.map_or(Ok(()), |signal| self.store(signal))?;
        Ok(true)
    }

    fn store(&mut self, signal: Signal) -> Result<(), LinkError> {
        let Some(end) = signal.offset.checked_add(8) else {
            return Err(protocol("a signal beyond the address space"));
        };
        if !signal.offset.is_multiple_of(8) {
            return Err(protocol(
                "a signal that is not at an aligned word of the pool",
            ));
        }
        let grants = &self.places.grants;
        if grants.allow(RegionKey::POOL, &(signal.offset..end))? {
            grants.regions().with(RegionKey::POOL, |pool| {
                let word = pool.word(signal.offset);
                word.store(signal.value, Ordering::Release);
            });
            self.signalled = true;
        }
        Ok(())
    }
}

fn protocol(what: &str) -> LinkError {
    LinkError::Protocol(what.into())
}
