//! Handshake of two endpoints that are to share memory.
//!
//! ```text
//! dialler                                  listener
//! hello: magic, token, own id, peer's id ->
//!                                       <- yield                         (then both hang up)
//!                                       <- accept + pool + event         or this
//! offer + pool + event + rings          ->
//!                                       <- ready
//! ```
//! Each packet begins with a tag. On a hello without its token, the listener closes the socket.
//! Each side maps the received memory and compares the label in the header of the pool with the
//! peer's identity, which proves that the mapping works.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_transport::fork::Descriptor;
use weft_transport::{
    EndpointId, LinkError, Local, MappedPeer, POOL_LABEL, Regions, Segment, is_own_limit,
};

use crate::rings::Rings;
use crate::socket;

const MAGIC: &[u8; 8] = b"weftshm3";
const TAG_HELLO: u8 = 1;
const TAG_YIELD: u8 = 2;
const TAG_ACCEPT: u8 = 3;
const TAG_OFFER: u8 = 4;
const TAG_READY: u8 = 5;

const CANCEL_CHECK: Duration = Duration::from_millis(20);

/// How long each side waits for the other's next packet, and when it gives up.
pub(crate) struct HandshakeDeadline<'a> {
    pub(crate) deadline: Instant,
    pub(crate) cancel: &'a AtomicBool,
}

impl HandshakeDeadline<'_> {
    /// How long to wait before checking again.
    pub(crate) fn slice(&self, what: &str) -> Result<Duration, LinkError> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(LinkError::Cancelled);
        }
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(LinkError::TimedOut(what.into())),
            left => Ok(left.min(CANCEL_CHECK)),
        }
    }
}

/// Writes this endpoint's label into the header of its pool, where peers check it.
pub(crate) fn label_pool(local: &Local) {
    for (index, half) in halves(local.id).into_iter().enumerate() {
        local
            .pool
            .word(POOL_LABEL + 8 * index as u64)
            .store(half, Ordering::Release);
    }
}

/// The dialling side. `None`: the listener's own attempt to connect here should win.
pub(crate) fn dial(
    socket: BorrowedFd<'_>,
    local: &Local,
    peer: EndpointId,
    token: &[u8; 32],
    deadline: &HandshakeDeadline<'_>,
) -> Result<Option<(MappedPeer, Rings)>, LinkError> {
    let hello = ShmHello {
        token: *token,
        from: local.id,
        to: peer,
    };
    send(socket, TAG_HELLO, &hello.to_bytes(), &[])?;
    let answer = receive(socket, deadline, "the peer's answer to a connection")?;
    if answer.tag == TAG_YIELD {
        return Ok(None);
    }
    let [pool, event] = answer.expect(TAG_ACCEPT)?.descriptors()?;
    let mapped = map(peer, pool, event)?;
    let rings = Rings::create().map_err(refused)?;
    let [pool, event] = offered(local);
    send(socket, TAG_OFFER, &[], &[pool, event, rings.descriptor()])?;
    receive(socket, deadline, "the peer's mapping of shared memory")?.expect(TAG_READY)?;
    Ok(Some((mapped, rings)))
}

/// The listening side. `None`: the caller does not know the token, or is declined now.
pub(crate) fn answer(
    socket: BorrowedFd<'_>,
    local: &Local,
    accept: impl FnOnce(EndpointId) -> bool,
    deadline: &HandshakeDeadline<'_>,
) -> Result<Option<(EndpointId, MappedPeer, Rings)>, LinkError> {
    let packet = receive(socket, deadline, "a hello")?.expect(TAG_HELLO)?;
    let Some(hello) = ShmHello::from_bytes(&packet.bytes) else {
        return Ok(None);
    };
    if !hello.is_for(local) {
        return Ok(None);
    }
    if !accept(hello.from) {
        send(socket, TAG_YIELD, &[], &[])?;
        return Ok(None);
    }
    send(socket, TAG_ACCEPT, &[], &offered(local))?;
    let offer = receive(socket, deadline, "the peer's offer of shared memory")?;
    let [pool, event, rings] = offer.expect(TAG_OFFER)?.descriptors()?;
    let mapped = map(hello.from, pool, event)?;
    let rings = Rings::map(rings).map_err(refused)?;
    send(socket, TAG_READY, &[], &[])?;
    Ok(Some((hello.from, mapped, rings)))
}

struct ShmHello {
    token: [u8; 32],
    from: EndpointId,
    to: EndpointId,
}

impl ShmHello {
    fn to_bytes(&self) -> Vec<u8> {
        let (from, to) = (self.from.0.to_le_bytes(), self.to.0.to_le_bytes());
        [&MAGIC[..], &self.token, &from, &to].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<ShmHello> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (token, rest) = rest.split_first_chunk()?;
        let (from, rest) = rest.split_first_chunk()?;
        let to = rest.try_into().ok()?;
        let [from, to] = [*from, to].map(|bytes| EndpointId(u128::from_le_bytes(bytes)));
        Some(ShmHello {
            token: *token,
            from,
            to,
        })
    }

    /// Takes the same time wherever the tokens differ.
    fn is_for(&self, local: &Local) -> bool {
        let pairs = self.token.iter().zip(&local.token);
        let difference = pairs.fold(0, |difference, (a, b)| difference | (a ^ b));
        difference == 0 && self.to == local.id
    }
}

/// A caller's first packet.
#[cfg(test)]
pub(crate) fn hello(token: &[u8; 32], from: EndpointId, to: EndpointId) -> Vec<u8> {
    let token = *token;
    let hello = ShmHello { token, from, to };
    [&[TAG_HELLO][..], &hello.to_bytes()].concat()
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing {
    use super::ShmHello;

    /// A caller's hello.
    pub fn hello(bytes: &[u8]) {
        if let Some(hello) = ShmHello::from_bytes(bytes) {
            assert_eq!(hello.to_bytes(), bytes);
        }
    }
}

struct Packet {
    tag: u8,
    bytes: Vec<u8>,
    descriptors: Vec<Descriptor>,
}

impl Packet {
    fn expect(self, tag: u8) -> Result<Packet, LinkError> {
        if self.tag == tag {
            Ok(self)
        } else {
            Err(out_of_turn())
        }
    }

    /// The descriptors of this packet, if there are `COUNT` of them.
    fn descriptors<const COUNT: usize>(self) -> Result<[Descriptor; COUNT], LinkError> {
        self.descriptors.try_into().map_err(|_| out_of_turn())
    }
}

/// Maps a pool and verifies that it is the peer's.
fn map(peer: EndpointId, pool: Descriptor, event: Descriptor) -> Result<MappedPeer, LinkError> {
    let pool = Arc::new(Segment::map(pool).map_err(refused)?);
    for (index, half) in halves(peer).into_iter().enumerate() {
        let word = pool
            .checked_word(POOL_LABEL + 8 * index as u64)
            .ok_or_else(out_of_turn)?;
        if word.load(Ordering::Acquire) != half {
            return Err(LinkError::Refused(
                "the received memory is not the peer's pool".into(),
            ));
        }
    }
    let regions = Regions::new(Arc::clone(&pool));
    MappedPeer::new(pool, regions, event).map_err(refused)
}

fn refused(error: io::Error) -> LinkError {
    if is_own_limit(&error) {
        return LinkError::Io(error);
    }
    LinkError::Refused(format!("cannot map memory: {error}"))
}

fn offered(local: &Local) -> [BorrowedFd<'_>; 2] {
    [local.pool.descriptor(), local.doorbell.descriptor()]
}

fn halves(id: EndpointId) -> [u64; 2] {
    [id.0 as u64, (id.0 >> 64) as u64]
}

/// The handshake's few packets always fit into a fresh socket.
fn send(
    socket: BorrowedFd<'_>,
    tag: u8,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), LinkError> {
    socket::send(socket, [&[tag], bytes], descriptors).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => hung_up(),
        _ => LinkError::Io(error),
    })
}

fn receive(
    socket: BorrowedFd<'_>,
    deadline: &HandshakeDeadline<'_>,
    what: &str,
) -> Result<Packet, LinkError> {
    while !socket::wait(socket, deadline.slice(what)?)? {}
    let mut bytes = Vec::new();
    let descriptors = match socket::receive(socket, &mut bytes) {
        Ok(descriptors) => descriptors,
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(hung_up()),
        Err(error) => return Err(LinkError::Io(error)),
    };
    if bytes.is_empty() {
        return Err(hung_up());
    }
    let tag = bytes.remove(0);
    Ok(Packet {
        tag,
        bytes,
        descriptors,
    })
}

fn hung_up() -> LinkError {
    LinkError::Refused(
        "the peer closed the connection: it expects another token, or is closing".into(),
    )
}

fn out_of_turn() -> LinkError {
    LinkError::Protocol("a packet out of turn during the connection's handshake".into())
}
