//! Errors of links between two endpoints.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::os_code;

/// Whoever calls has waited so long for want of a descriptor when it is told of.
const SHORTAGE_TOLD: Duration = Duration::from_millis(500);

/// Why a link could not be made, or does not work any more.
#[derive(Debug)]
pub enum LinkError {
    /// The peer's process ended, its host vanished, or the connection broke without a goodbye.
    Gone(String),
    /// The peer said goodbye: it closed this link in an orderly way.
    Left,
    /// The two sides do not share what the transport needs (another host, another token, a refused
    /// mapping).
    Refused(String),
    /// The peer's process is of another user, with whom memory is not shared.
    OtherUser(String),
    /// What this endpoint needs for the transport is missing or set wrongly: an interface, a
    /// library, a device, a port. It says nothing about the peer.
    Setup(String),
    /// Nobody listens at the peer's address, as the system there has said: its endpoint is closed,
    /// its process has ended, or the address is another's.
    Absent(String),
    /// Nothing came before the deadline.
    TimedOut(String),
    /// The attempt was cancelled.
    Cancelled,
    /// The peer sent something that the protocol does not allow.
    Protocol(String),
    /// What a put was to read, or a get to write, lies in no region of this endpoint's and is not
    /// registered, and the transport needs that.
    Unregistered,
    /// The operating system said no.
    Io(io::Error),
}

/// Whether the operating system has refused something for a limit of this process or machine:
/// descriptors, those of its user's that are in messages, or memory. It says nothing about the
/// peer.
pub fn is_own_limit(error: &io::Error) -> bool {
    use libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS};
    matches!(
        os_code(error),
        Some(EMFILE | ENFILE | ENOBUFS | ENOMEM | ETOOMANYREFS)
    )
}

/// Since when those who call cannot be taken in for want of a descriptor.
#[derive(Default)]
pub struct Shortage(Option<Instant>);

impl Shortage {
    /// Somebody could not be taken in. Whether it has been so for long enough to be told of.
    pub fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        now - *self.0.get_or_insert(now) >= SHORTAGE_TOLD
    }

    /// Nobody waits any more.
    pub fn end(&mut self) {
        self.0 = None;
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Gone(why) => write!(f, "the peer is gone: {why}"),
            LinkError::Left => write!(f, "the peer closed the connection"),
            LinkError::Refused(why) | LinkError::Setup(why) => write!(f, "{why}"),
            LinkError::OtherUser(why) => write!(f, "the peer is another user's process: {why}"),
            LinkError::Absent(why) => write!(f, "nobody listens there: {why}"),
            LinkError::TimedOut(what) => write!(f, "timed out: {what}"),
            LinkError::Cancelled => write!(f, "cancelled"),
            LinkError::Protocol(what) => write!(f, "protocol violation by the peer: {what}"),
            LinkError::Unregistered => {
                write!(
                    f,
                    "the memory lies in no region of this endpoint's and is not registered"
                )
            }
            LinkError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        LinkError::Io(error)
    }
}
