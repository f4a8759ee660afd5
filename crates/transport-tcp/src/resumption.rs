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
/// The most bytes that count beyond that although they were not copied.
const REFUSED: u64 = 4 << 20;

/// Whether a connection that breaks while both processes live is made anew: what was sent and not
/// confirmed is kept for that. The same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Resumption {
    /// Never: the link ends with it.
    Off,
    /// If what was sent is still kept. Little processor time is spent on keeping: a put whose
    /// memory its caller takes back before it is confirmed is copied only as far as the time
    /// allows. Links over several networks keep everything.
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

    /// The setting for a link. Over several networks everything is kept: that the loss of one does
    /// no harm is what they are for.
    pub(crate) fn for_networks(self, several: bool) -> Self {
        match self {
            Resumption::Auto if several => Resumption::On,
            other => other,
        }
    }

    /// Whether anything is kept.
    pub(crate) fn keeps(self) -> bool {
        self != Resumption::Off
    }

    /// Whether nothing is copied now: what a caller takes back is let go.
    pub(crate) fn lets_go(self) -> bool {
        !self.allows_copy(0)
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

/// Takes the time for a copy from what this process may spend. False if that is less than what its
/// links ask for: then nothing is copied, as a link lacks something almost always.
fn take_time_for(bytes: u64) -> bool {
    static START: OnceLock<Instant> = OnceLock::new();
    /// See [`Spent`].
    static SPENT_UNTIL: AtomicU64 = AtomicU64::new(0);
    let since = START.get_or_init(Instant::now).elapsed();
    let now = (since.as_micros() as u64).saturating_mul(RATE) / 1_000_000;
    let ask = |until| Some(Spent { until }.ask(now, bytes).until);
    let asked = SPENT_UNTIL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, ask);
    let until = asked.unwrap_or_else(|until| until);
    Spent { until }.ask(now, bytes).until <= now + BURST
}

/// When all time will be available again if nothing is asked for. Moments are numbers of bytes that
/// may have been copied until then.
#[derive(Clone, Copy)]
struct Spent {
    until: u64,
}

impl Spent {
    /// After a copy that is asked for now. It is allowed if that is at most a burst away. What is
    /// not allowed counts as well, up to a limit.
    fn ask(self, now: u64, bytes: u64) -> Spent {
        let until = self.until.max(now) + bytes;
        Spent {
            until: until.min(now + BURST + REFUSED),
        }
    }
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
    fn bytes_kept_at_any_cost_are_not_let_go() {
        assert!(Resumption::Off.lets_go());
        assert!(!Resumption::On.lets_go());
    }

    /// The bytes that are copied of those that are asked for, in a second.
    fn copied(asked: u64) -> u64 {
        const STEPS: u64 = 1000;
        let (mut spent, mut copied) = (Spent { until: 0 }, 0);
        for step in 0..10 * STEPS {
            let now = RATE / STEPS * step;
            spent = spent.ask(now, asked / STEPS);
            if step >= 9 * STEPS && spent.until <= now + BURST {
                copied += asked / STEPS;
            }
        }
        copied
    }

    #[test]
    fn everything_is_copied_up_to_the_rate_and_nothing_beyond() {
        for asked in [RATE / 10, RATE / 2, RATE - RATE / 100] {
            assert_eq!(copied(asked), asked / 1000 * 1000);
        }
        for asked in [RATE + RATE / 10, 10 * RATE] {
            assert_eq!(copied(asked), 0);
        }
    }

    #[test]
    fn copying_begins_again_when_less_is_asked_for() {
        let mut spent = Spent { until: 0 };
        for _ in 0..100 {
            spent = spent.ask(0, BURST);
        }
        let is_allowed = |now| spent.ask(now, 1).until <= now + BURST;
        assert!(!is_allowed(REFUSED));
        assert!(is_allowed(REFUSED + 1));
    }
}
