//! A private network whose line can be cut, for tests of hosts that vanish. It needs the right to
//! make network namespaces.

use std::process::Command;

/// Moves this thread, and the threads that it starts, to a new network. Prints a message and
/// returns false where that is not permitted.
pub fn enter_network() -> bool {
    // SAFETY: plain system call that concerns this thread only.
    let entered = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    if !entered {
        eprintln!("skipped: this process may not make a network namespace");
    }
    entered && set_loopback("up")
}

/// Sets the network's only interface `up` or `down`. Prints a message and returns false where that
/// does not work.
pub fn set_loopback(state: &str) -> bool {
    let status = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status();
    let set = status.is_ok_and(|status| status.success());
    if !set {
        eprintln!("skipped: `ip link set lo {state}` failed");
    }
    set
}
