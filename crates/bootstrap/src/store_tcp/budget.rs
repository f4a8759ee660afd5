//! The processor time that strangers may take from the process that serves the store.
//!
//! A handshake costs up to milliseconds, and any process that reaches the port can begin one. A
//! client that completes it is refunded the time, so ranks that start take none of the budget, in
//! any number. Beyond the budget strangers wait, those of a source that has taken much behind
//! others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The most sources that are known; the one that has taken least is removed.
const SOURCES_MAX: usize = 1024;

/// The time taken, in total and by source.
pub(super) struct HandshakeBudget {
    /// The time that may be taken in one burst.
    burst: Duration,
    /// The fraction of one core that may be taken permanently, as one part in `share`.
    share: u32,
    /// The total, less what has been allotted since.
    taken: Duration,
    /// The same for each source.
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

    /// Whether strangers are served now.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        self.pay(now);
        self.taken < self.burst
    }

    /// When they are served again, if not now.
    pub(super) fn resumes(&self) -> Option<Instant> {
        let missing = self.taken.checked_sub(self.burst)?;
        Some(self.at + missing * self.share + Duration::from_millis(1))
    }

    /// Charges a stranger's source for this time.
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

    /// Refunds a client that is no stranger.
    pub(super) fn refund(&mut self, source: IpAddr, time: Duration) {
        self.taken = self.taken.saturating_sub(time);
        if let Some(taken) = self.by.get_mut(&source) {
            *taken = taken.saturating_sub(time);
        }
    }

    /// The time that a source has taken: sources that have taken less have precedence.
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
    fn a_flood_gets_only_its_share() {
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
        // A later source has precedence.
        assert!(budget.taken_by(source(2)) < budget.taken_by(source(1)));
    }

    #[test]
    fn ranks_take_none_of_the_budget() {
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
