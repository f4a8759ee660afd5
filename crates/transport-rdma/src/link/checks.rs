//! Checks of arguments.

use std::io;

use weft_transport::{LinkError, Signal};

/// The end of an access, if it and its signal are within the address space.
pub(super) fn check_put(offset: u64, len: u64, signal: Option<Signal>) -> Result<u64, LinkError> {
    let end = offset.checked_add(len);
    let end = end.ok_or_else(|| invalid("the access reaches beyond the address space"))?;
    match signal {
        Some(signal) if !signal.offset.is_multiple_of(8) => {
            Err(invalid("a signal's offset must be a multiple of 8"))
        }
        _ => Ok(end),
    }
}

/// The error for an invalid argument.
pub(crate) fn invalid(what: &'static str) -> LinkError {
    LinkError::Io(io::Error::new(io::ErrorKind::InvalidInput, what))
}
