//! One link's two ways to the peer: the mapped pool and the socket, and the order between them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_transport::fork::Descriptor;
use weft_transport::{EndpointId, Inbox, LinkError, MappedPeer, Progress, Signal};

use crate::socket;
use crate::watch::Watch;

const MESSAGE_BYTES_MAX: usize = 64 * 1024;
const SMALL_PUT_BYTES_MAX: u64 = 256;

/// The first byte of every packet.
const TAG_MESSAGE: u8 = 0;
const TAG_GOODBYE: u8 = 1;

/// How a connection stands.
const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const LEFT: u8 = 2;
const GONE: u8 = 3;
const BROKEN: u8 = 4;

/// A peer that is connected.
///
/// Puts and signals go straight into the peer's pool, unless messages wait for room in the socket: then everything queues behind
/// them, so that it takes effect in the order of the calls.
pub(crate) struct Connection {
    id: EndpointId,
    /// The key under which the watching thread knows this connection.
    pub(crate) key: u64,
    peer: MappedPeer,
    process: i32,
    socket: Descriptor,
    watch: Arc<Watch>,
    state: AtomicU8,
    /// Whether the queue holds anything. Changed under the queue's lock; cleared after the last entry took effect.
    backlog: AtomicBool,
    queue: Mutex<VecDeque<Queued>>,
    /// The packet that is being taken in. Held meanwhile, so that packets stay in order.
    reading: Mutex<Vec<u8>>,
}

/// What waits for its turn.
enum Queued {
    Packet {
        tag: u8,
        bytes: Vec<u8>,
        descriptors: Vec<OwnedFd>,
    },
    Put {
        offset: u64,
        bytes: Vec<u8>,
        signal: Option<Signal>,
    },
}

impl Connection {
    pub(crate) fn new(
        id: EndpointId,
        peer: MappedPeer,
        socket: Descriptor,
        watch: Arc<Watch>,
    ) -> io::Result<Connection> {
        Ok(Connection {
            id,
            key: watch.new_key(),
            peer,
            process: socket::peer_credentials(socket.as_fd())?.pid,
            socket,
            watch,
            state: AtomicU8::new(OPEN),
            backlog: AtomicBool::new(false),
            queue: Mutex::default(),
            reading: Mutex::default(),
        })
    }

    pub(crate) fn id(&self) -> EndpointId {
        self.id
    }

    pub(crate) fn peer(&self) -> &MappedPeer {
        &self.peer
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(crate) fn raw_socket(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether a put or a signal must queue behind messages.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Acquire)
    }

    /// An error if the link has ended, or if this process is a forked child.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<(), LinkError> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            ended => Err(self.end(ended)),
        }
    }

    #[cold]
    fn end(&self, state: u8) -> LinkError {
        match state {
            GONE => LinkError::Gone(format!(
                "process {} ended, or dropped the link",
                self.process
            )),
            BROKEN => LinkError::Protocol("a packet that makes no sense".into()),
            _ => LinkError::Left,
        }
    }

    /// A put while there is a backlog. Nothing is written unless everything before it was sent.
    pub(crate) fn put_in_order(
        &self,
        offset: u64,
        pieces: &[&[u8]],
        signal: Option<Signal>,
    ) -> Result<Progress, LinkError> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.peer.check_generation()?;
        self.peer.check(offset, len, signal)?;
        let mut queue = self.locked_queue();
        if self.drain(&mut queue)? == Progress::Done {
            self.peer.put(offset, pieces, signal)?;
        } else if len <= SMALL_PUT_BYTES_MAX {
            queue.push_back(Queued::Put {
                offset,
                bytes: pieces.concat(),
                signal,
            });
        } else {
            return Ok(Progress::Pending);
        }
        Ok(Progress::Done)
    }

    pub(crate) fn message(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), LinkError> {
        self.peer.check_generation()?;
        if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > socket::DESCRIPTORS_MAX {
            return Err(LinkError::Io(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a message is at most 64 KiB long and carries at most 16 descriptors",
            )));
        }
        self.send_packet(TAG_MESSAGE, bytes, descriptors)
    }

    pub(crate) fn flush(&self) -> Result<Progress, LinkError> {
        if !self.has_backlog() {
            return Ok(Progress::Done);
        }
        self.peer.check_generation()?;
        self.drain(&mut self.locked_queue())
    }

    /// Takes in all packets that have arrived, then says whether the link has ended.
    pub(crate) fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.check_open()?;
        self.peer.check_generation()?;
        let mut packet = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        while self.state.load(Ordering::Acquire) == OPEN {
            match socket::receive(self.socket.as_fd(), &mut packet) {
                Ok(descriptors) => match packet.split_first() {
                    Some((&TAG_MESSAGE, bytes)) => inbox.message(bytes, descriptors),
                    Some((&TAG_GOODBYE, [])) => self.ended(LEFT),
                    Some(_) => self.ended(BROKEN),
                    None => self.ended(GONE),
                },
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    // The peer ended without having read everything. What it sent before comes next, then the end.
                    io::ErrorKind::ConnectionReset => {}
                    io::ErrorKind::InvalidData => self.ended(BROKEN),
                    _ => return Err(LinkError::Io(error)),
                },
            }
        }
        self.check_open()
    }

    /// Says goodbye. True if the goodbye is on its way, false if it waits in the queue.
    pub(crate) fn close(&self) -> bool {
        if self.peer.check_generation().is_err() || !self.ended_now(CLOSED) {
            return true;
        }
        // A failure means that the peer has ended too, so nobody misses the goodbye.
        let _ = self.send_packet(TAG_GOODBYE, &[], &[]);
        !self.has_backlog()
    }

    fn ended(&self, state: u8) {
        self.ended_now(state);
    }

    fn ended_now(&self, state: u8) -> bool {
        self.state
            .compare_exchange(OPEN, state, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn send_packet(
        &self,
        tag: u8,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), LinkError> {
        let mut queue = self.locked_queue();
        let mut room = self.drain(&mut queue)? == Progress::Done;
        if room {
            room = self.send_now(tag, bytes, descriptors)?;
        }
        if !room {
            let descriptors = descriptors
                .iter()
                .map(BorrowedFd::try_clone_to_owned)
                .collect::<io::Result<Vec<_>>>()?;
            queue.push_back(Queued::Packet {
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

    /// Sends from the queue what can go. The order of effects is the queue's, so the caller holds its lock.
    fn drain(&self, queue: &mut VecDeque<Queued>) -> Result<Progress, LinkError> {
        while let Some(next) = queue.front() {
            match next {
                Queued::Packet {
                    tag,
                    bytes,
                    descriptors,
                } => {
                    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                    if !self.send_now(*tag, bytes, &borrowed)? {
                        return Ok(Progress::Pending);
                    }
                }
                Queued::Put {
                    offset,
                    bytes,
                    signal,
                } => self.peer.put(*offset, &[bytes], *signal)?,
            }
            queue.pop_front();
        }
        if self.backlog.swap(false, Ordering::AcqRel) {
            self.watch.await_room(self, false)?;
        }
        Ok(Progress::Done)
    }

    /// False if the socket has no room. A peer that has ended takes everything: its end is told when it is read.
    fn send_now(
        &self,
        tag: u8,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<bool, LinkError> {
        use io::ErrorKind::{
            BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, WouldBlock,
        };
        match socket::send(self.socket.as_fd(), [&[tag], bytes], descriptors) {
            Ok(()) => {
                self.peer.knock()?;
                Ok(true)
            }
            Err(error) => match error.kind() {
                WouldBlock => Ok(false),
                BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected => Ok(true),
                _ => Err(LinkError::Io(error)),
            },
        }
    }

    fn locked_queue(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
