//! The processor time that strangers may take from the process that serves the store.
//!
//! A handshake costs up to milliseconds, and anybody who reaches the port can begin one. Who comes
//! through it gets the time refunded, so ranks that start take none of the budget, however many
//! they are. Beyond the budget strangers wait, those of a source that has taken much behind others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// So many sources are known; the one that has taken least is forgotten.
const SOURCES_MAX: usize = 1024;

/// Who has taken how much.
pub(super) struct HandshakeBudget {
    /// What they may take at once, when they have taken nothing before.
    burst: Duration,
    /// The part of one core that they may take for long, as one of so many.
    share: u32,
    /// Taken by all together, and not paid by time that has passed since.
    taken: Duration,
    /// Of the same kind, by each source.
    by: HashMap<IpAddr, Duration>,
    at: Instant,
}

impl HandshakeBudget {
    pub(super) fn new((burst, share): (Duration, u32), now: Instant) -> Self {
        Self {
            burst,
            share,
            taken: Duration::ZERO,
            by: HashMap::new(),
            at: now,
        }
    }

    /// Whether strangers are to be attended to now.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        self.pay(now);
        self.taken < self.burst
    }

    /// When they are the next time, if not now.
    pub(super) fn resumes(&self) -> Option<Instant> {
        let missing = self.taken.checked_sub(self.burst)?;
        Some(self.at + missing * self.share + Duration::from_millis(1))
    }

    /// A stranger from this source has taken so much.
    pub(super) fn charge(&mut self, source: IpAddr, time: Duration) {
        self.taken += time;
        *self.by.entry(source).or_default() += time;
        if self.by.len() > SOURCES_MAX {
            let least = self.by.iter().max_by_key(|(_, taken)| Reverse(**taken));
            if let Some(least) = least.map(|(source, _)| *source) {
                self.by.remove(&least);
            }
        }
    }

    /// It has turned out to be no stranger.
    pub(super) fn refund(&mut self, source: IpAddr, time: Duration) {
        self.taken = self.taken.saturating_sub(time);
        if let Some(taken) = self.by.get_mut(&source) {
            *taken = taken.saturating_sub(time);
        }
    }

    /// What a source has taken: those that have taken less come first.
    pub(super) fn taken_by(&self, source: IpAddr) -> Duration {
        self.by.get(&source).copied().unwrap_or_default()
    }

    fn pay(&mut self, now: Instant) {
        let paid = now.saturating_duration_since(self.at) / self.share;
        self.at = now;
        self.taken = self.taken.saturating_sub(paid);
        self.by.retain(|_, taken| {
            *taken = taken.saturating_sub(paid);
            !taken.is_zero()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const BURST: Duration = Duration::from_secs(1);
    const SHARE: u32 = 5;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_flood_gets_its_share_and_no_more() {
        let start = Instant::now();
        let mut budget = HandshakeBudget::new((BURST, SHARE), start);
        let cost = Duration::from_millis(5);
        let (mut now, mut spent) = (start, Duration::ZERO);
        while now < start + Duration::from_secs(100) {
            if budget.has_room(now) {
                budget.charge(source(1), cost);
                spent += cost;
                now += cost;
            } else {
                now = now.max(budget.resumes().unwrap());
            }
        }
        let allowed = BURST + Duration::from_secs(100) / SHARE;
        assert!(spent <= allowed + cost, "{spent:?} of {allowed:?}");
        assert!(spent + Duration::from_secs(1) > allowed, "{spent:?}");
        // A source that comes later comes first.
        assert!(budget.taken_by(source(2)) < budget.taken_by(source(1)));
    }

    #[test]
    fn ranks_take_nothing_however_many_they_are() {
        let now = Instant::now();
        let mut budget = HandshakeBudget::new((BURST, SHARE), now);
        for number in 0..100_000 {
            assert!(budget.has_room(now));
            budget.charge(source(number), Duration::from_millis(50));
            budget.refund(source(number), Duration::from_millis(50));
        }
        assert!(budget.by.len() <= SOURCES_MAX);
    }
}
