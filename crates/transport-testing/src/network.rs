//! A network of one's own, whose line can be cut, for tests of hosts that vanish. Needs the right
//! to make network namespaces.

use std::process::Command;

/// Moves this thread, and the threads that it starts, to a network of their own. False, and says
/// so, where that is not allowed.
pub fn enter_network() -> bool {
    // SAFETY: plain system call that concerns this thread only.
    let entered = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    if !entered {
        eprintln!("skipped: no right to make a network namespace");
    }
    entered && set_loopback("up")
}

/// Sets the network's only interface `up` or `down`. False, and says so, where that does not work.
pub fn set_loopback(state: &str) -> bool {
    let status = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status();
    let set = status.is_ok_and(|status| status.success());
    if !set {
        eprintln!("skipped: `ip link set lo {state}` does not work here");
    }
    set
}
