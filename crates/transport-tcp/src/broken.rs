//! Errors with which a connection breaks.
#![forbid(unsafe_code)]

use std::io;

/// Whether an error of a connection is the end of its link too: what arrives is not the peer's.
/// Otherwise the connection may be made anew.
pub(crate) fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
    };
    !is_given_up(error)
        && !matches!(
            error.kind(),
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
        )
}

/// Whether TCP has given up the peer's host, or the way to it. That may be long before the peer
/// timeout: within eight seconds, where the own system drops what is sent.
pub(crate) fn is_given_up(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, TimedOut};
    matches!(
        error.kind(),
        TimedOut | HostUnreachable | NetworkUnreachable | NetworkDown
    )
}

/// The reason for the end of a connection that the peer's system has closed.
pub(crate) const CLOSED: &str = "the connection to it ended without a goodbye";

/// The reason for a connection's end by this error.
pub(crate) fn broken_by(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("its host was silent for too long: {error}"),
        io::ErrorKind::UnexpectedEof => CLOSED.into(),
        _ => format!("the connection to it broke: {error}"),
    }
}
