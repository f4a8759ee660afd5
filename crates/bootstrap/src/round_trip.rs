//! Round trip of a group: measurements of its ranks on links between hosts, and the figure on which
//! they agree.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Links with at least this round trip have delay: the data under way must be chosen to fill them.
/// Shorter links are within a building, where the choice matters little.
const DELAYED: Duration = Duration::from_millis(2);

/// Whether a group of this round trip has links with delay.
pub fn is_delayed(round_trip: Duration) -> bool {
    round_trip >= DELAYED
}

/// The round trips that a rank has measured on its links to the neighbouring ranks, in
/// microseconds. None where no link crosses a network.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct MeasuredRoundTrips {
    pub(super) before: Option<u32>,
    pub(super) after: Option<u32>,
}

/// The longest round trip of any two neighbours, which include the last rank and the first: if
/// ranks are at two places, some neighbours are at different ones.
///
/// Of the two measurements of a link the shorter counts, since a busy host makes them longer.
pub(super) fn agreed(measured: &[MeasuredRoundTrips]) -> Duration {
    let after = measured.iter().map(|rank| rank.after);
    let before = measured.iter().map(|rank| rank.before).cycle().skip(1);
    let links = after.zip(before).filter_map(|ends| match ends {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    });
    Duration::from_micros(links.max().unwrap_or(0).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(measured: &[(Option<u32>, Option<u32>)], micros: u64) {
        let measured: Vec<_> = (measured.iter())
            .map(|(before, after)| MeasuredRoundTrips {
                before: *before,
                after: *after,
            })
            .collect();
        assert_eq!(agreed(&measured), Duration::from_micros(micros));
    }

    #[test]
    fn the_longest_link_counts_by_its_shorter_measurement() {
        check(&[], 0);
        check(&[(None, None); 3], 0);
        check(&[(Some(70), Some(90)), (Some(95), Some(60))], 90);
        // Ranks 0 and 1 here, 2 and 3 elsewhere; one end of each long link was busy.
        let (near, far) = (Some(100), Some(40_000));
        let busy = Some(90_000);
        check(
            &[(busy, near), (near, far), (busy, near), (near, far)],
            40_000,
        );
        check(&[(None, near), (None, None)], 100);
        check(&[(busy, None), (None, near)], 100);
    }

    #[test]
    fn short_lines_have_no_delay() {
        assert!(!is_delayed(Duration::ZERO));
        assert!(!is_delayed(Duration::from_micros(1999)));
        assert!(is_delayed(Duration::from_millis(10)));
    }
}
