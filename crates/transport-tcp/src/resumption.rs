//! The setting for connections that are made anew, and the cost that it may have.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes that a process copies in a second to keep them, so that this takes at most a fiftieth of a
/// core.
const RATE: u64 = 128 << 20;
/// Bytes that it may copy at once, after it has copied nothing for a while.
const BURST: u64 = 16 << 20;

/// Whether a connection that breaks while both processes live is made anew: what was sent and not
/// confirmed is kept for that. The same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Resumption {
    /// Never: the link ends with it.
    Off,
    /// If what was sent is still kept. Little processor time is spent on keeping: a put whose
    /// memory its caller takes back before it is confirmed is copied only as far as the time
    /// allows.
    #[default]
    Auto,
    /// Always: everything is kept, at any cost.
    On,
}

impl Resumption {
    /// Parses a setting's value: `auto`, `always` or `never`.
    pub fn parse(name: &str) -> Option<Resumption> {
        let all = [Resumption::Off, Resumption::Auto, Resumption::On];
        all.into_iter().find(|one| one.to_string() == name)
    }

    /// Whether anything is kept.
    pub(crate) fn keeps(self) -> bool {
        self != Resumption::Off
    }

    /// Whether this many bytes may be copied now to keep them.
    pub(crate) fn allows_copy(self, bytes: u64) -> bool {
        match self {
            Resumption::Off => false,
            Resumption::Auto => take_time_for(bytes),
            Resumption::On => true,
        }
    }
}

impl fmt::Display for Resumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resumption::Off => "never",
            Resumption::Auto => "auto",
            Resumption::On => "always",
        })
    }
}

/// Takes the time for a copy from what this process may spend, if enough is left.
fn take_time_for(bytes: u64) -> bool {
    static START: OnceLock<Instant> = OnceLock::new();
    /// When all time will be available again, in bytes at the rate since the start.
    static SPENT_UNTIL: AtomicU64 = AtomicU64::new(0);
    let since = START.get_or_init(Instant::now).elapsed();
    let now = (since.as_micros() as u64).saturating_mul(RATE) / 1_000_000;
    let spend = |until: u64| spent_after(until, now, bytes);
    let spent = SPENT_UNTIL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
    spent.is_ok()
}

/// When all time will be available again after a copy now; None if too little is left for it.
fn spent_after(until: u64, now: u64, bytes: u64) -> Option<u64> {
    let after = until.max(now) + bytes;
    (after <= now + BURST).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_by_name() {
        for resumption in [Resumption::Off, Resumption::Auto, Resumption::On] {
            assert_eq!(Resumption::parse(&resumption.to_string()), Some(resumption));
        }
        assert_eq!(Resumption::parse("yes"), None);
    }

    #[test]
    fn copies_take_no_more_than_the_rate() {
        assert_eq!(spent_after(0, 5, BURST), Some(5 + BURST));
        assert_eq!(spent_after(0, 5, BURST + 1), None);
        // Of a burst, a quarter is available again when that time has passed.
        let spent = spent_after(0, 0, BURST).unwrap();
        let later = BURST / 4;
        assert_eq!(spent_after(spent, later, BURST / 4 + 1), None);
        assert_eq!(spent_after(spent, later, BURST / 4), Some(spent + later));
    }
}
