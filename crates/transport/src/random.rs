//! Random identities.

use std::io;

use crate::{EndpointId, last_failure};

/// Bytes from the kernel's random source.
///
/// # Errors
/// If the system call fails.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and the length describe `rest`, which is writable.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match got {
            0.. => filled += got as usize,
            _ => retry_if_interrupted(last_failure("getrandom"))?,
        }
    }
    Ok(bytes)
}

/// A fresh endpoint identity.
///
/// # Errors
/// As for [`random`].
pub fn random_endpoint_id() -> io::Result<EndpointId> {
    Ok(EndpointId(u128::from_le_bytes(random()?)))
}

fn retry_if_interrupted(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
