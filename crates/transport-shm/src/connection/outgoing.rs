//! The sending half of a connection, and the queue of messages that wait for room.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use weft_transport::fork::Descriptor;
use weft_transport::{
    FlushState, INJECT_BYTES_MAX, Iovec, LinkError, MESSAGE_BYTES_MAX, RegionKey, Signal,
    Submission,
};

use super::ShmConnection;
use super::halves::{MessageStream, QueuedMessage, ShmOutgoing, TAG_MESSAGE, THEN_RING};
use crate::rings::RING_BYTES;
use crate::socket;

impl ShmConnection {
    /// A put while there is a backlog: it is written after everything sent before.
    pub(crate) fn put_in_order(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        self.peer.check_generation()?;
        if self.drain(&mut self.locked_outgoing())? == FlushState::Pending {
            return Ok(Submission::Full);
        }
        self.peer.put(region, offset, pieces, signal)?;
        Ok(Submission::Done)
    }

    /// A few bytes, or only a signal, while there is a backlog.
    pub(crate) fn inject_in_order(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.peer.check_generation()?;
        let mut outgoing = self.locked_outgoing();
        if self.drain(&mut outgoing)? == FlushState::Done || bytes.len() > INJECT_BYTES_MAX {
            return self.peer.inject(region, offset, bytes, signal);
        }
        let len = bytes.len() as u64;
        self.peer.check(region, offset, len, signal)?;
        outgoing.queue.push_back(QueuedMessage::Inject {
            region,
            offset,
            bytes: bytes.to_vec(),
            signal,
        });
        Ok(())
    }

    pub(crate) fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.peer.check_generation()?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(too_long());
        }
        self.send_packet(&mut self.locked_outgoing(), TAG_MESSAGE, bytes, &[])
    }

    /// A message for which the peer waits or polls: it is not notified, unless it sleeps.
    pub(crate) fn polled_message(&self, pieces: &[&[u8]]) -> Result<(), LinkError> {
        self.peer.check_generation()?;
        let mut outgoing = self.locked_outgoing();
        let ShmOutgoing {
            ring,
            writer,
            stream,
            ..
        } = &mut *outgoing;
        if *stream == MessageStream::Ring && self.checked(writer.write(ring, pieces))? {
            drop(outgoing);
            self.peer.ring();
            return Ok(());
        }
        let bytes = pieces.concat();
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(too_long());
        }
        self.send_packet(&mut outgoing, TAG_MESSAGE, &bytes, &[])
    }

    pub(crate) fn flush(&self) -> Result<FlushState, LinkError> {
        if !self.has_backlog() {
            return Ok(FlushState::Done);
        }
        self.peer.check_generation()?;
        self.drain(&mut self.locked_outgoing())
    }

    pub(super) fn send_packet(
        &self,
        outgoing: &mut ShmOutgoing,
        tag: u8,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), LinkError> {
        let mut room = self.drain(outgoing)? == FlushState::Done;
        if outgoing.stream == MessageStream::Ring {
            outgoing.writer.divert(&outgoing.ring);
            outgoing.stream = MessageStream::Socket;
        }
        if room {
            room = self.send_now(outgoing, tag, bytes, descriptors)?;
        }
        if !room {
            let descriptors = descriptors
                .iter()
                .map(|descriptor| Descriptor::copy_of(*descriptor))
                .collect::<io::Result<Vec<_>>>()?;
            outgoing.queue.push_back(QueuedMessage::Packet {
                tag,
                bytes: bytes.to_vec(),
                descriptors,
            });
            if !self.backlog.swap(true, Ordering::AcqRel) {
                self.watch.await_room(self, true)?;
            }
        }
        Ok(())
    }

    /// Sends as much of the queue as possible. Effects follow the queue's order, so the caller must
    /// hold its lock.
    fn drain(&self, outgoing: &mut ShmOutgoing) -> Result<FlushState, LinkError> {
        while let Some(next) = outgoing.queue.pop_front() {
            match &next {
                QueuedMessage::Packet {
                    tag,
                    bytes,
                    descriptors,
                } => {
                    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                    let sent = self.send_now(outgoing, *tag, bytes, &borrowed);
                    if !matches!(sent, Ok(true)) {
                        outgoing.queue.push_front(next);
                        return sent.map(|_| FlushState::Pending);
                    }
                }
                QueuedMessage::Inject {
                    region,
                    offset,
                    bytes,
                    signal,
                } => match self.peer.inject(*region, *offset, bytes, *signal) {
                    // The region was withdrawn since: the write is late.
                    Err(LinkError::Io(_)) => {}
                    result => result?,
                },
            }
        }
        if self.backlog.load(Ordering::Relaxed) {
            self.backlog.store(false, Ordering::Release);
            self.watch.await_room(self, false)?;
        }
        Ok(FlushState::Done)
    }

    /// False if the socket has no room. Sending to a peer that has ended succeeds: its end is
    /// reported by receiving.
    fn send_now(
        &self,
        outgoing: &mut ShmOutgoing,
        tag: u8,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<bool, LinkError> {
        use io::ErrorKind::{
            BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, WouldBlock,
        };
        let half = self.checked(outgoing.writer.has_room(&outgoing.ring, RING_BYTES / 2))?;
        let then_ring = outgoing.queue.is_empty() && half;
        let tag = if then_ring { tag | THEN_RING } else { tag };
        match socket::send(self.socket.as_fd(), [&[tag], bytes], descriptors) {
            Ok(()) => {
                if then_ring {
                    outgoing.stream = MessageStream::Ring;
                }
                self.peer.notify()?;
                Ok(true)
            }
            Err(error) => match error.kind() {
                WouldBlock => Ok(false),
                BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected => Ok(true),
                _ => Err(LinkError::Io(error)),
            },
        }
    }

    pub(super) fn locked_outgoing(&self) -> MutexGuard<'_, ShmOutgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_long() -> LinkError {
    LinkError::Io(io::Error::new(
        io::ErrorKind::InvalidInput,
        "a message is at most 64 KiB long",
    ))
}
