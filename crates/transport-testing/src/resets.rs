//! Resets of TCP connections whose processes live.

use std::fs;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_transport::Link;

/// Resets one of the connections of a link over TCP, each in its turn. What this end has not sent
/// or not read is lost, and the other end gets a reset.
pub fn reset(link: &dyn Link) {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let Some(descriptor) = link.descriptor() else {
        return;
    };
    let several = watched_by(descriptor);
    match several.len() {
        0 => reset_socket(descriptor),
        count => reset_socket(several[TURN.fetch_add(1, Ordering::Relaxed) % count]),
    }
}

/// The descriptors that an epoll set watches; none for other files.
fn watched_by(descriptor: RawFd) -> Vec<RawFd> {
    let path = format!("/proc/self/fdinfo/{descriptor}");
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
    lines
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

/// Resets a connected socket. Nothing happens to other files.
pub fn reset_socket(socket: RawFd) {
    let nowhere = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as _,
        sa_data: [0; 14],
    };
    let bytes = size_of_val(&nowhere) as libc::socklen_t;
    // SAFETY: the address outlives the call, and is as long as it says. Files that are no sockets
    // are refused.
    unsafe { libc::connect(socket, &raw const nowhere, bytes) };
}
