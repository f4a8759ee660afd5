//! TCP congestion control, chosen by name or by the length of a connection.
//!
//! [Note: Congestion control of short lines] weft sends in bursts: a rank forwards what it has just
//! received. BBR and CUBIC mistake the pauses between bursts for the line's rate, the first by its
//! pacing, the second by ending slow start at the first delay that a busy processor causes, and
//! leave line and processor idle. Reno grows until a packet is lost, and where a round trip is
//! short the loss is soon repaired. CUBIC itself behaves as Reno there once it is past slow start,
//! so other traffic is not treated worse.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;
use std::{fs, io};

use weft_transport::{checked, os_code};

use crate::descriptor::unconnected;

/// The kernel's limit for names, including the terminating zero.
const NAME_BYTES_MAX: usize = 16;

/// Connections with a shorter round trip than this are short.
const SHORT: Duration = Duration::from_millis(1);
/// Algorithms that perform badly on short connections. Others, such as dctcp, were chosen for the
/// network by its administrator.
const REPLACED: [&str; 2] = ["bbr", "cubic"];

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// The congestion control of a transport's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CongestionChoice {
    /// Reno on short connections where the host's default is BBR or CUBIC, otherwise the host's
    /// default.
    #[default]
    Automatic,
    /// The host's default.
    Host,
    /// This one.
    Named(CongestionControl),
}

impl CongestionChoice {
    /// Parses a user's setting: `auto`, `host`, or a name.
    ///
    /// # Errors
    /// The name is not allowed: see [`CongestionControl::named`].
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(CongestionChoice::Automatic),
            "host" => Ok(CongestionChoice::Host),
            name => CongestionControl::named(name).map(CongestionChoice::Named),
        }
    }

    /// Applies the choice to a connected socket with this measured round trip (zero if there is no
    /// measurement).
    pub(crate) fn apply(self, socket: BorrowedFd<'_>, round_trip: Duration) -> io::Result<()> {
        match self {
            CongestionChoice::Host => Ok(()),
            CongestionChoice::Named(control) => control.apply(socket),
            CongestionChoice::Automatic => {
                let short = !round_trip.is_zero() && round_trip < SHORT;
                if short && REPLACED.contains(&CongestionControl::of(socket)?.name()) {
                    // Where it is not permitted, the host's default is used.
                    let _ = CongestionControl::padded("reno").apply(socket);
                }
                Ok(())
            }
        }
    }
}

/// A TCP congestion control that this process may use on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CongestionControl {
    /// Padded with zeros.
    name: [u8; NAME_BYTES_MAX],
}

impl CongestionControl {
    /// The congestion control of this name, tried on a new socket: the kernel may load a module for
    /// it.
    ///
    /// # Errors
    /// It cannot be used. The message gives the reason and the usable ones.
    pub fn named(name: &str) -> Result<Self, String> {
        let refused = |error: io::Error| refusal(name, &error);
        // The kernel would truncate a longer name.
        if name.is_empty() || name.len() >= NAME_BYTES_MAX || name.contains('\0') {
            return Err(refused(io::Error::from_raw_os_error(libc::ENOENT)));
        }
        let control = Self::padded(name);
        let socket = unconnected(libc::AF_INET).map_err(refused)?;
        control.apply(socket.as_fd()).map_err(refused)?;
        Ok(control)
    }

    /// `name` must be shorter than [`NAME_BYTES_MAX`].
    fn padded(name: &str) -> Self {
        let mut padded = [0; NAME_BYTES_MAX];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        Self { name: padded }
    }

    /// The congestion control that a TCP socket uses.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut name = [0; NAME_BYTES_MAX];
        let mut bytes = NAME_BYTES_MAX as libc::socklen_t;
        let (place, raw) = (name.as_mut_ptr().cast(), socket.as_raw_fd());
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        // SAFETY: the name is writable and as long as it says, and both outlive the call.
        let asked = unsafe { libc::getsockopt(raw, level, option, place, &mut bytes) };
        checked("getsockopt(TCP_CONGESTION)", asked).map(|_| Self { name })
    }

    fn name(&self) -> &str {
        let name = self.name.split(|byte| *byte == 0).next();
        // The kernel's names are ASCII.
        name.and_then(|name| std::str::from_utf8(name).ok())
            .unwrap_or_default()
    }

    /// Sets it for a TCP socket.
    pub(crate) fn apply(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (place, bytes) = (self.name.as_ptr().cast(), NAME_BYTES_MAX as _);
        let (raw, option) = (socket.as_raw_fd(), libc::TCP_CONGESTION);
        // SAFETY: the name outlives the call and is as long as it says.
        let set = unsafe { libc::setsockopt(raw, libc::IPPROTO_TCP, option, place, bytes) };
        checked("setsockopt(TCP_CONGESTION)", set).map(drop)
    }
}

fn refusal(name: &str, error: &io::Error) -> String {
    let why = match os_code(error) {
        Some(libc::ENOENT) => format!(
            "this host has {} ({AVAILABLE}); others are kernel modules, tcp_bbr for bbr, which root \
             loads with modprobe",
            listed(AVAILABLE)
        ),
        Some(libc::EPERM) => format!(
            "it takes CAP_NET_ADMIN (root) on this host; every user may use {} ({ALLOWED})",
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
        // Part of every Linux kernel.
        assert!(why.contains("reno"), "{why}");
    }

    #[test]
    fn unknown_name_is_refused_with_the_known_ones() {
        check_refused("nosuch");
        check_refused("");
        check_refused("reno\0");
        check_refused("reno-and-many-more-letters");
    }

    /// The congestion control of a socket that had `before`, after the choice.
    fn chosen(choice: CongestionChoice, before: &str, round_trip: Duration) -> String {
        let socket = unconnected(libc::AF_INET).unwrap();
        CongestionControl::padded(before)
            .apply(socket.as_fd())
            .unwrap();
        choice.apply(socket.as_fd(), round_trip).unwrap();
        let used = CongestionControl::of(socket.as_fd()).unwrap();
        used.name().into()
    }

    #[test]
    fn short_connections_use_reno_in_place_of_cubic() {
        let automatic = |before, micros| {
            let round_trip = Duration::from_micros(micros);
            chosen(CongestionChoice::Automatic, before, round_trip)
        };
        assert_eq!(automatic("cubic", 100), "reno");
        assert_eq!(automatic("reno", 100), "reno");
        // Long, or not measured.
        assert_eq!(automatic("cubic", 1000), "cubic");
        assert_eq!(automatic("cubic", 0), "cubic");
    }

    #[test]
    fn choice_by_name_stays() {
        let named = CongestionChoice::parse("reno").unwrap();
        let short = Duration::from_micros(100);
        assert_eq!(chosen(CongestionChoice::Host, "cubic", short), "cubic");
        assert_eq!(chosen(named, "cubic", Duration::from_secs(1)), "reno");
        assert_eq!(
            CongestionChoice::parse("auto"),
            Ok(CongestionChoice::Automatic)
        );
        assert_eq!(CongestionChoice::parse("host"), Ok(CongestionChoice::Host));
        let why = CongestionChoice::parse("nosuch").unwrap_err();
        assert!(why.contains("nosuch"), "{why}");
    }

    #[test]
    fn algorithm_allowed_to_users_can_be_used() {
        for name in fs::read_to_string(ALLOWED).unwrap().split_whitespace() {
            CongestionControl::named(name).unwrap();
        }
    }
}
