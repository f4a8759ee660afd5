//! Errors with which a connection breaks.
#![forbid(unsafe_code)]

use std::io;

/// Whether an error of a connection is the end of its link too: its host was silent until TCP gave
/// it up, or what arrives is not the peer's. Otherwise the connection may be made anew.
pub(crate) fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
    };
    !matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof
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
