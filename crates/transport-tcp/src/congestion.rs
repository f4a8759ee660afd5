//! TCP congestion control, chosen by name.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::{fs, io};

use crate::socket::unconnected;

/// The kernel's bound of a name, with the zero behind it.
const NAME_BYTES_MAX: usize = 16;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// A TCP congestion control that this process may use on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CongestionControl {
    /// Zeros behind it.
    name: [u8; NAME_BYTES_MAX],
}

impl CongestionControl {
    /// The one of this name, tried on a socket of its own: the kernel may load it for that.
    ///
    /// # Errors
    /// It cannot be used. The message says why, and what can.
    pub fn named(name: &str) -> Result<Self, String> {
        let refused = |error: io::Error| refusal(name, &error);
        // The kernel would cut a longer name off.
        if name.is_empty() || name.len() >= NAME_BYTES_MAX || name.contains('\0') {
            return Err(refused(io::Error::from_raw_os_error(libc::ENOENT)));
        }
        let mut control = Self {
            name: [0; NAME_BYTES_MAX],
        };
        control.name[..name.len()].copy_from_slice(name.as_bytes());
        let socket = unconnected(libc::AF_INET).map_err(refused)?;
        control.apply(socket.as_fd()).map_err(refused)?;
        Ok(control)
    }

    /// Has a TCP socket use it from now on.
    pub(crate) fn apply(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (place, bytes) = (self.name.as_ptr().cast(), NAME_BYTES_MAX as _);
        let (raw, option) = (socket.as_raw_fd(), libc::TCP_CONGESTION);
        // SAFETY: the name outlives the call and is as long as it says.
        match unsafe { libc::setsockopt(raw, libc::IPPROTO_TCP, option, place, bytes) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn refusal(name: &str, error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT) => format!(
            "this host has {} ({AVAILABLE}); others are kernel modules, tcp_bbr for bbr, which root \
             loads with modprobe",
            listed(AVAILABLE)
        ),
        Some(libc::EPERM) => format!(
            "it takes CAP_NET_ADMIN (root) on this host; everybody may use {} ({ALLOWED})",
            listed(ALLOWED)
        ),
        _ => format!("{error}; this host has {} ({AVAILABLE})", listed(AVAILABLE)),
    };
    format!("tcp_congestion={name:?} is not allowed: {why}")
}

/// The names that the kernel lists in a file.
fn listed(path: &str) -> String {
    match fs::read_to_string(path) {
        Ok(text) => text.split_whitespace().collect::<Vec<_>>().join(", "),
        Err(error) => format!("unknown ones: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_refused(name: &str) {
        let why = CongestionControl::named(name).unwrap_err();
        let expected = format!("tcp_congestion={name:?} is not allowed: this host has ");
        assert!(why.starts_with(&expected), "{why}");
        // Linux cannot be built without it.
        assert!(why.contains("reno"), "{why}");
    }

    #[test]
    fn what_the_host_lacks_is_refused_and_what_it_has_is_named() {
        check_refused("nosuch");
        check_refused("");
        check_refused("reno\0");
        check_refused("reno-and-many-more-letters");
    }

    #[test]
    fn what_is_allowed_to_everybody_can_be_used() {
        for name in fs::read_to_string(ALLOWED).unwrap().split_whitespace() {
            CongestionControl::named(name).unwrap();
        }
    }
}
