//! Ways that links of this process have lost, so that its other links do not wait there as well.
//!
//! [Note: Lost ways] A connection is silent only once something was sent over it, and links are
//! used one after the other: each would find the loss when its turn comes, and their pauses would
//! add up. So a link that leaves its way records the addresses of the ends, and connections with
//! one of these addresses follow at their next look.
//!
//! They need less proof than the first one, whose peer was silent over this way and has answered
//! over another. A connection follows only if it has received nothing since before that was found:
//! one that carries traffic, or has just been answered, stays. With both addresses in common, that
//! is enough. With one, the lost end may be the other one: then the connection's own way is called
//! first, and a host that answers there is not left. If an idle connection leaves for nothing, as
//! when only the first one was forgotten on the way, that costs it a call, and one to return.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weft_transport::PerProcess;

use crate::lock::lock;

/// A host from which something has arrived this recently is not silent.
pub(crate) const RECENT: Duration = Duration::from_millis(200);
/// For how long others follow. Idle connections are probed each second anyway.
const FRESH: Duration = Duration::from_secs(1);

/// The addresses of a connection's ends, this process's first.
pub(crate) type Ends = (IpAddr, IpAddr);

static LOSSES: PerProcess<Mutex<Losses>> = PerProcess::new(Default::default);

/// Records that a connection between these addresses is silent, although its peer lives.
pub(crate) fn record(ends: Ends) {
    lock(LOSSES.get()).add(ends, Instant::now());
}

/// Whether there is a loss that was found after `seen`.
pub(crate) fn is_any(seen: Option<Instant>, now: Instant) -> bool {
    lock(LOSSES.get()).after(seen, now).next().is_some()
}

/// How those concern a connection that has been quiet for this long, if they do.
pub(crate) fn concern(
    ends: Ends,
    quiet: Duration,
    seen: Option<Instant>,
    now: Instant,
) -> Option<Concern> {
    lock(LOSSES.get()).concern(ends, quiet, seen, now)
}

/// How a lost way concerns another connection. The last counts most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Concern {
    /// It has one of the addresses.
    Address,
    /// It has both.
    Way,
}

/// At most one for each way.
#[derive(Default)]
struct Losses(Vec<Loss>);

struct Loss {
    ends: Ends,
    found: Instant,
}

impl Losses {
    /// Links that follow, or find the same, do not make the others look again.
    fn add(&mut self, ends: Ends, now: Instant) {
        self.0.retain(|loss| now - loss.found < FRESH);
        if self.0.iter().all(|loss| loss.ends != ends) {
            self.0.push(Loss { ends, found: now });
        }
    }

    /// Those that still count, and were found after `seen`.
    fn after(&self, seen: Option<Instant>, now: Instant) -> impl Iterator<Item = &Loss> {
        let is_new = move |loss: &Loss| seen.is_none_or(|seen| loss.found > seen);
        (self.0.iter()).filter(move |loss| now - loss.found < FRESH && is_new(loss))
    }

    fn concern(
        &self,
        (own, peer): Ends,
        quiet: Duration,
        seen: Option<Instant>,
        now: Instant,
    ) -> Option<Concern> {
        let quiet_since = |loss: &&Loss| quiet >= now - loss.found + RECENT;
        let concern = |loss: &Loss| match (loss.ends.0 == own, loss.ends.1 == peer) {
            (true, true) => Some(Concern::Way),
            (false, false) => None,
            _ => Some(Concern::Address),
        };
        let losses = self.after(seen, now).filter(quiet_since);
        losses.filter_map(concern).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn ends(own: u8, peer: u8) -> Ends {
        (
            IpAddr::from([10, 0, 0, own]),
            IpAddr::from([10, 0, 0, peer]),
        )
    }

    /// How the loss of the way from 1 to 2 concerns another one 50 ms later.
    fn concern(other: Ends, quiet: u32) -> Option<Concern> {
        let (mut losses, found) = (Losses::default(), Instant::now());
        losses.add(ends(1, 2), found);
        losses.concern(other, quiet * MS, None, found + 50 * MS)
    }

    #[test]
    fn loss_concerns_those_with_its_addresses() {
        assert_eq!(concern(ends(1, 2), 400), Some(Concern::Way));
        assert_eq!(concern(ends(1, 3), 400), Some(Concern::Address));
        assert_eq!(concern(ends(3, 2), 400), Some(Concern::Address));
        assert_eq!(concern(ends(3, 4), 400), None);
        assert_eq!(concern(ends(2, 1), 400), None);
    }

    #[test]
    fn connection_that_has_received_something_since_is_not_concerned() {
        assert_eq!(concern(ends(1, 2), 250), Some(Concern::Way));
        assert_eq!(concern(ends(1, 2), 249), None);
        assert_eq!(concern(ends(1, 3), 0), None);
    }

    #[test]
    fn both_addresses_count_more_than_one() {
        let (mut losses, now) = (Losses::default(), Instant::now());
        for lost in [ends(1, 3), ends(1, 2), ends(1, 4)] {
            losses.add(lost, now);
        }
        let concern = losses.concern(ends(1, 2), 400 * MS, None, now);
        assert_eq!(concern, Some(Concern::Way));
    }

    #[test]
    fn loss_counts_once_and_for_a_moment() {
        let (mut losses, found) = (Losses::default(), Instant::now());
        let is_any =
            |losses: &Losses, seen, later| losses.after(seen, found + later).next().is_some();
        losses.add(ends(1, 2), found);
        assert!(is_any(&losses, None, MS));
        assert!(!is_any(&losses, Some(found), MS));
        losses.add(ends(1, 2), found + 500 * MS);
        assert!(!is_any(&losses, Some(found), 500 * MS));
        assert!(is_any(&losses, None, 999 * MS));
        assert!(!is_any(&losses, None, 1000 * MS));
        losses.add(ends(1, 2), found + 1000 * MS);
        assert!(is_any(&losses, Some(found), 1000 * MS));
    }
}
