//! Default algorithms of a group that need not exist, for tools that explain choices.

use std::time::Duration;

use weft_algorithms::{MemoryClass, Reach};
use weft_bootstrap::is_delayed;

use super::defaults::preferences;
use super::traits::GroupTraits;

/// The algorithms that a group without a profile tries, best first, with the bytes of the longest
/// message that they are for: in ascending order, the last without a limit.
///
/// Its ranks share memory within their hosts, and each host is a machine of its own.
pub fn untuned_preferences(
    collective: &str,
    ranks_per_host: &[u32],
    round_trip: Duration,
    memory: MemoryClass,
) -> Vec<(u64, &'static [&'static str])> {
    let several = ranks_per_host.len() > 1;
    let uneven = several && ranks_per_host.iter().any(|ranks| *ranks > 1);
    let traits = GroupTraits {
        ranks: ranks_per_host.iter().sum(),
        reach: match (several, uneven) {
            (false, _) => Reach::All,
            (true, true) => Reach::Unit,
            (true, false) => Reach::None,
        },
        uneven,
        reproducible: false,
        delayed: is_delayed(round_trip),
        crowded: false,
    };
    preferences(collective, traits, memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(ranks_per_host: &[u32], bytes: u64, round_trip: Duration) -> &'static str {
        let memory = MemoryClass::Ordinary;
        let found = untuned_preferences("all-reduce", ranks_per_host, round_trip, memory);
        let row = found.iter().find(|(up_to, _)| bytes <= *up_to);
        row.expect("the last is without a limit").1[0]
    }

    #[test]
    fn hosts_and_round_trips_decide() {
        let check = |ranks_per_host: &[u32], bytes, round_trip_ms, expected| {
            let found = first(ranks_per_host, bytes, Duration::from_millis(round_trip_ms));
            assert_eq!(
                found, expected,
                "{ranks_per_host:?}, {bytes} bytes, {round_trip_ms} ms"
            );
        };
        check(&[4], 1 << 20, 0, "slice-reduce");
        check(&[2, 2], 1 << 20, 0, "multi-rail(slice-reduce, ring)");
        check(&[1, 1, 1, 1], 1 << 20, 0, "ring");
        check(&[1, 1, 1, 1], 1 << 20, 20, "two-shot");
    }
}
