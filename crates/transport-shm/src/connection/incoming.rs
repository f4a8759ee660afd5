//! The receiving half of a connection: messages of both streams, in one order.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError};

use weft_transport::fork::Descriptor;
use weft_transport::ring::RingRead;
use weft_transport::{Inbox, LinkError, RegionKey, Segment, os_code};

use super::halves::{MessageStream, ShmIncoming, TAG_GOODBYE, TAG_MESSAGE, TAG_REGION, THEN_RING};
use super::{LEFT, OPEN, ShmConnection};
use crate::socket;

/// The most messages taken from the ring in one call: the caller may already have the message that
/// it waits for.
const POLLED_MESSAGES_MAX: usize = 64;

impl ShmConnection {
    /// Whether a message is in the ring.
    #[inline]
    pub(crate) fn has_polled_message(&self) -> bool {
        let incoming = self.try_receiving();
        incoming.is_some_and(|incoming| incoming.reader.has_any(&incoming.ring))
    }

    /// Receives the messages in the ring, and those in the socket between them.
    pub(crate) fn take_polled_message(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.check_open()?;
        self.peer.check_generation()?;
        let Some(mut incoming) = self.try_receiving() else {
            return Ok(());
        };
        self.read_ring(&mut incoming, POLLED_MESSAGES_MAX, inbox);
        if incoming.stream == MessageStream::Socket {
            self.read_all(&mut incoming, inbox)?;
        }
        self.check_open()
    }

    /// Receives all messages that have arrived, then returns an error if the link has ended.
    pub(crate) fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.check_open()?;
        self.peer.check_generation()?;
        if let Some(mut incoming) = self.try_receiving() {
            self.read_all(&mut incoming, inbox)?;
        }
        self.check_open()
    }

    fn read_all(&self, incoming: &mut ShmIncoming, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        while self.state.load(Ordering::Acquire) == OPEN {
            let received = socket::receive(self.socket.as_fd(), &mut incoming.packet);
            // After the socket was read: messages that were in the ring when the packet was sent,
            // or when the peer ended, are visible now.
            self.read_ring(incoming, usize::MAX, inbox);
            match received {
                Ok(descriptors) => self.take_packet(incoming, descriptors, inbox),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    // The peer ended without having read everything. Its earlier messages come
                    // first, then the end.
                    io::ErrorKind::ConnectionReset => {}
                    // A packet whose descriptor this process had no room for.
                    _ if os_code(&error) == Some(libc::EMFILE) => {
                        self.take_packet(incoming, Vec::new(), inbox);
                    }
                    io::ErrorKind::InvalidData => self.broken("a packet that is too long".into()),
                    _ => return Err(LinkError::Io(error)),
                },
            }
        }
        Ok(())
    }

    /// Receives the messages in the ring, up to a diversion.
    fn read_ring(&self, incoming: &mut ShmIncoming, records: usize, inbox: &mut dyn Inbox) {
        for _ in 0..records {
            if incoming.stream == MessageStream::Socket {
                return;
            }
            match incoming.reader.read(&incoming.ring, &mut incoming.record) {
                Ok(RingRead::Record) => inbox.message(&incoming.record),
                Ok(RingRead::Diversion) => incoming.stream = MessageStream::Socket,
                Ok(RingRead::Nothing) => return,
                Err(breach) => return self.broken(breach),
            }
        }
    }

    fn take_packet(
        &self,
        incoming: &mut ShmIncoming,
        descriptors: Vec<Descriptor>,
        inbox: &mut dyn Inbox,
    ) {
        let Some((tag, bytes)) = incoming.packet.split_first() else {
            return self.socket_ended();
        };
        if incoming.stream == MessageStream::Ring {
            return self.broken("a packet while the ring was in use".into());
        }
        match tag & !THEN_RING {
            TAG_MESSAGE => inbox.message(bytes),
            TAG_REGION => self.take_region(bytes, descriptors),
            TAG_GOODBYE if bytes.is_empty() => self.ended(LEFT),
            _ => self.broken(format!("a packet with tag {tag}")),
        }
        if tag & THEN_RING != 0 {
            incoming.stream = MessageStream::Ring;
        }
    }

    /// A region that cannot be mapped is treated as not granted.
    fn take_region(&self, key: &[u8], mut descriptors: Vec<Descriptor>) {
        let key = key.try_into().map(u64::from_le_bytes);
        let Some(key) = key
            .ok()
            .map(RegionKey)
            .filter(|key| *key != RegionKey::POOL)
        else {
            return self.broken("a region without a valid key".into());
        };
        let regions = self.peer.regions();
        match descriptors.pop().map(Segment::map) {
            Some(Ok(segment)) => regions.insert(key, Arc::new(segment)),
            Some(Err(_)) => {}
            None => regions.withdraw(key),
        }
    }

    /// None while messages are being received: an inbox that calls back here finds its own thread
    /// at it.
    fn try_receiving(&self) -> Option<MutexGuard<'_, ShmIncoming>> {
        match self.incoming.try_lock() {
            Ok(incoming) => Some(incoming),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
