//! Errors of links between two endpoints.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::os_code;

/// How long callers wait because of missing descriptors until that is reported.
const SHORTAGE_REPORTED: Duration = Duration::from_millis(500);

/// The reason that a link could not be made, or does not work any more.
#[derive(Debug)]
pub enum LinkError {
    /// The peer's process ended, its host vanished, or the connection broke without a goodbye.
    Gone(String),
    /// The peer said goodbye: it closed this link in an orderly way.
    Left,
    /// The two sides do not share a requirement of the transport (they have different hosts or
    /// tokens, or a mapping was refused).
    Refused(String),
    /// The peer's process is of another user, with whom memory is not shared.
    OtherUser(String),
    /// A requirement of the transport is missing or misconfigured at this endpoint: an interface, a
    /// library, a device, a port. It is independent of the peer.
    Setup(String),
    /// Nothing listens at the peer's address, as its system reports: its endpoint is closed, its
    /// process has ended, or the address is not the peer's.
    Absent(String),
    /// Nothing arrived before the deadline.
    TimedOut(String),
    /// The attempt was cancelled.
    Cancelled,
    /// The peer sent something that the protocol does not allow.
    Protocol(String),
    /// The memory of a put or get is in no region of this endpoint and is not registered, although
    /// the transport needs that.
    Unregistered,
    /// The operating system returned an error.
    Io(io::Error),
}

/// Whether the operating system has refused something for a limit of this process or machine:
/// descriptors, descriptors of its user in messages, or memory. It is independent of the peer.
pub fn is_own_limit(error: &io::Error) -> bool {
    use libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS};
    matches!(
        os_code(error),
        Some(EMFILE | ENFILE | ENOBUFS | ENOMEM | ETOOMANYREFS)
    )
}

/// The time since which callers cannot be accepted because of missing descriptors.
#[derive(Default)]
pub struct Shortage(Option<Instant>);

impl Shortage {
    /// Records that a caller could not be accepted. Returns whether that has lasted long enough to
    /// be reported.
    pub fn persists(&mut self) -> bool {
        let now = Instant::now();
        now - *self.0.get_or_insert(now) >= SHORTAGE_REPORTED
    }

    /// Records that no caller waits any more.
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
            LinkError::Absent(why) => write!(f, "{why}"),
            LinkError::TimedOut(what) => write!(f, "timed out: {what}"),
            LinkError::Cancelled => write!(f, "cancelled"),
            LinkError::Protocol(what) => write!(f, "protocol violation by the peer: {what}"),
            LinkError::Unregistered => {
                write!(
                    f,
                    "the memory is in no region of this endpoint and is not registered"
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
