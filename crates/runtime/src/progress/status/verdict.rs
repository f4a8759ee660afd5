//! The verdict on a job: which rank or link the others wait for.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_channel::{LinkCounts, OngoingOperation, RankStatus};
use weft_flight::readable;

/// Operations that are younger than this are no reason for concern.
const WAIT_US_MIN: u64 = 500_000;
/// A link that delivers has fewer bytes in its queue at most times.
const QUEUED_BYTES_MIN: u64 = 64 << 10;
/// A rank from which bytes came more recently than this is alive.
const QUIET_US_MAX: u64 = 300_000;
/// Ranks that a sentence names; more are counted.
const NAMES_MAX: usize = 4;

/// A rank that has not answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct SilentRank {
    /// Its number in the group that was asked.
    pub(super) rank: u32,
    pub(super) global_rank: u32,
    pub(super) host: String,
}

/// One sentence, and the ranks that it blames.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Verdict {
    /// For people.
    text: String,
    /// The ranks, by their numbers in the world, that the others wait for.
    culprits: Vec<u32>,
    /// How many ranks wait.
    waiting: usize,
}

impl Verdict {
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the cause that blocks a job, if there is one.
pub(super) fn verdict(ranks: &[RankStatus], silent: &[SilentRank]) -> Verdict {
    let stuck = Stuck::find(ranks);
    if !silent.is_empty() {
        return do_not_answer(ranks, silent, stuck.as_ref());
    }
    match stuck {
        None => no_collective_waits(ranks),
        Some(stuck) => stuck
            .missing_callers(ranks)
            .or_else(|| stuck.fullest_link())
            .unwrap_or_else(|| stuck.slowest(ranks)),
    }
}

/// The collective that ranks have waited in for longest.
struct Stuck<'a> {
    operation: &'a OngoingOperation,
    sequence: u64,
    /// The ranks in it.
    waiting: Vec<&'a RankStatus>,
}

impl<'a> Stuck<'a> {
    fn find(ranks: &'a [RankStatus]) -> Option<Self> {
        let stuck: Vec<_> = ranks.iter().filter_map(long_wait).collect();
        // The earliest collective of the group of the oldest operation: others wait behind it.
        let collectives = || {
            stuck
                .iter()
                .filter_map(|(_, one)| Some((one.sequence?, *one)))
        };
        let (_, oldest) = collectives().max_by_key(|(_, operation)| operation.age_us)?;
        let of_group = collectives().filter(|(_, one)| one.group == oldest.group);
        let (sequence, operation) = of_group.min_by_key(|(sequence, _)| *sequence)?;
        let waits = |one: &OngoingOperation| {
            one.group == operation.group && one.sequence == operation.sequence
        };
        let waiting = stuck.iter().filter(|(_, one)| waits(one));
        Some(Stuck {
            operation,
            sequence,
            waiting: waiting.map(|(status, _)| *status).collect(),
        })
    }

    /// Ranks that have not made the call.
    fn missing_callers(&self, ranks: &[RankStatus]) -> Option<Verdict> {
        let missing = ranks.iter().filter(|status| {
            let group = status
                .groups
                .iter()
                .find(|group| group.id == self.operation.group);
            group.is_some_and(|group| group.called.is_none_or(|called| called < self.sequence))
        });
        let missing: Vec<&RankStatus> = missing.collect();
        let longest = missing.iter().max_by_key(|status| status.quiet_us)?;
        let does = match &longest.current {
            Some(other) => format!("in {} since {}", other.text, seconds(other.age_us)),
            None => format!(
                "in the program, outside of weft, since {}",
                seconds(longest.quiet_us)
            ),
        };
        Some(self.blame(
            missing.iter().map(|status| status.global_rank).collect(),
            &format!("{} did not call it: {does}", named(&missing)),
        ))
    }

    /// Where all have called: the link with the most bytes in its queue, if that is not few.
    fn fullest_link(&self) -> Option<Verdict> {
        let queued = |link: &LinkCounts| link.queued_bytes;
        let of_rank = |status: &&'a RankStatus| {
            let fullest = status.links.iter().max_by_key(|link| queued(link))?;
            Some((*status, fullest))
        };
        let links = self.waiting.iter().filter_map(of_rank);
        let (from, link) = links.max_by_key(|(_, link)| queued(link))?;
        (queued(link) >= QUEUED_BYTES_MIN).then(|| {
            let (to, bytes) = (link.global_rank, readable(queued(link)));
            let from_rank = named(&[from]);
            self.blame(
                vec![from.global_rank, to],
                &format!("the link from {from_rank} to rank {to} is slow: {bytes} wait in it"),
            )
        })
    }

    /// Where all have called: the rank at the end of the chain of waits, or the link that is slow.
    fn slowest(&self, ranks: &[RankStatus]) -> Verdict {
        let by_rank: BTreeMap<u32, &RankStatus> = ranks
            .iter()
            .map(|status| (status.global_rank, status))
            .collect();
        let mut at = self.waiting[0];
        for _ in 0..ranks.len() {
            let awaited = at
                .current
                .as_ref()
                .and_then(|current| current.waits_for.as_ref());
            let Some(awaited) = awaited else { break };
            if awaited.sends {
                let to = awaited.global_rank;
                return self.blame(
                    vec![at.global_rank, to],
                    &format!(
                        "the link from {} to rank {to} takes no more bytes",
                        named(&[at])
                    ),
                );
            }
            let Some(next) = by_rank.get(&awaited.global_rank) else {
                break;
            };
            let has_ended = next.groups.iter().any(|group| {
                group.id == self.operation.group && group.completed >= Some(self.sequence)
            });
            at = next;
            if has_ended {
                break;
            }
        }
        self.blame(
            vec![at.global_rank],
            &format!("all have called it; {} is behind", named(&[at])),
        )
    }

    fn blame(&self, culprits: Vec<u32>, why: &str) -> Verdict {
        let waiting = self.waiting.len();
        let (ranks, wait) = match waiting {
            1 => ("rank", "waits"),
            _ => ("ranks", "wait"),
        };
        Verdict {
            text: format!(
                "{waiting} {ranks} {wait} in {} (number {}) since {}: {why}",
                self.operation.text,
                self.sequence,
                seconds(self.operation.age_us)
            ),
            culprits,
            waiting,
        }
    }
}

/// A rank with an operation that is not young.
fn long_wait(status: &RankStatus) -> Option<(&RankStatus, &OngoingOperation)> {
    let operation = status.current.as_ref()?;
    (operation.age_us >= WAIT_US_MIN).then_some((status, operation))
}

/// Only messages and one-sided operations are waited for, or nothing.
fn no_collective_waits(ranks: &[RankStatus]) -> Verdict {
    let waiting: Vec<_> = ranks.iter().filter_map(long_wait).collect();
    let oldest = waiting.iter().max_by_key(|(_, operation)| operation.age_us);
    let text = match (oldest, ranks.len()) {
        (Some((status, operation)), _) => format!(
            "{} waits in {} since {}",
            named(&[status]),
            operation.text,
            seconds(operation.age_us)
        ),
        (None, 0) => "no group is open".into(),
        (None, 1) => "the rank makes progress".into(),
        (None, count) => format!("all {count} ranks make progress"),
    };
    Verdict {
        text,
        culprits: Vec::new(),
        waiting: waiting.len(),
    }
}

fn do_not_answer(
    ranks: &[RankStatus],
    silent: &[SilentRank],
    stuck: Option<&Stuck<'_>>,
) -> Verdict {
    let alive = |one: &&SilentRank| stuck.is_some() && sends_bytes(ranks, one.global_rank);
    let (slow, stopped): (Vec<&SilentRank>, Vec<_>) = silent.iter().partition(alive);
    let (silent, how) = match stopped.is_empty() {
        false => (
            stopped,
            "stopped, on a host without processor time, or out of reach",
        ),
        true => (slow, "its line is slow, since bytes from it still arrive"),
    };
    let names = (silent.iter()).map(|one| (one.global_rank, one.host.as_str()));
    let why = format!("{} did not answer: {how}", listed(names));
    let culprits: Vec<u32> = silent.iter().map(|one| one.global_rank).collect();
    match stuck {
        Some(stuck) => stuck.blame(culprits, &why),
        None => Verdict {
            text: why,
            culprits,
            waiting: 0,
        },
    }
}

/// Whether bytes from a rank arrive at others.
fn sends_bytes(ranks: &[RankStatus], global_rank: u32) -> bool {
    let mut links = ranks.iter().flat_map(|status| &status.links);
    links.any(|link| link.global_rank == global_rank && link.quiet_us < QUIET_US_MAX)
}

fn named(ranks: &[&RankStatus]) -> String {
    listed(
        ranks
            .iter()
            .map(|status| (status.global_rank, status.host.as_str())),
    )
}

/// "rank 3 on host-b, rank 5 on host-c and 2 more".
fn listed<'a>(ranks: impl Iterator<Item = (u32, &'a str)>) -> String {
    let ranks: Vec<(u32, &str)> = ranks.collect();
    let shown = ranks.iter().take(NAMES_MAX);
    let names: Vec<String> = shown
        .map(|(rank, host)| format!("rank {rank} on {host}"))
        .collect();
    match ranks.len().saturating_sub(NAMES_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn seconds(us: u64) -> String {
    match us {
        ..10_000_000 => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
        _ => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use weft_channel::AwaitedPeer;
    use weft_flight::GroupActivity;

    use super::*;

    const GROUP: u64 = 7;

    fn rank(rank: u32, called: u64, completed: u64) -> RankStatus {
        RankStatus {
            rank,
            global_rank: rank,
            host: format!("host-{}", rank / 2),
            quiet_us: 41_000_000,
            groups: vec![GroupActivity {
                id: GROUP,
                name: "world".into(),
                called: Some(called),
                completed: Some(completed),
            }],
            ..RankStatus::default()
        }
    }

    fn waiting(number: u32, sequence: u64, waits_for: Option<(u32, bool)>) -> RankStatus {
        RankStatus {
            current: Some(OngoingOperation {
                group: GROUP,
                sequence: Some(sequence),
                text: "all_reduce of 4 MiB".into(),
                age_us: 41_000_000,
                waits_for: waits_for.map(|(global_rank, sends)| AwaitedPeer { global_rank, sends }),
            }),
            ..rank(number, sequence, sequence - 1)
        }
    }

    fn check(ranks: &[RankStatus], silent: &[SilentRank], culprits: &[u32], text: &str) {
        let found = verdict(ranks, silent);
        assert_eq!(found.culprits, culprits, "{}", found.text);
        assert_eq!(found.text, text);
    }

    #[test]
    fn running_job_has_no_culprit() {
        check(
            &[rank(0, 3, 3), rank(1, 4, 3)],
            &[],
            &[],
            "all 2 ranks make progress",
        );
        let mut young = waiting(0, 4, None);
        young.current.as_mut().unwrap().age_us = 1000;
        check(
            &[young, rank(1, 3, 3)],
            &[],
            &[],
            "all 2 ranks make progress",
        );
    }

    #[test]
    fn rank_that_has_not_called_is_named() {
        let ranks = [
            waiting(0, 9, Some((1, false))),
            waiting(1, 9, Some((2, false))),
            rank(2, 8, 8),
        ];
        let text = "2 ranks wait in all_reduce of 4 MiB (number 9) since 41 s: rank 2 on host-1 did not \
                    call it: in the program, outside of weft, since 41 s";
        check(&ranks, &[], &[2], text);
    }

    #[test]
    fn silent_rank_is_named() {
        let silent = SilentRank {
            rank: 1,
            global_rank: 1,
            host: "host-b".into(),
        };
        let text = "1 rank waits in all_reduce of 4 MiB (number 9) since 41 s: rank 1 on host-b did not \
                    answer: stopped, on a host without processor time, or out of reach";
        check(&[waiting(0, 9, Some((1, false)))], &[silent], &[1], text);
    }

    #[test]
    fn silent_rank_with_a_slow_line_is_named() {
        let silent = SilentRank {
            rank: 1,
            global_rank: 1,
            host: "host-b".into(),
        };
        let mut waits = waiting(0, 9, Some((1, false)));
        waits.links = vec![LinkCounts {
            global_rank: 1,
            quiet_us: 20_000,
            ..LinkCounts::default()
        }];
        let text = "1 rank waits in all_reduce of 4 MiB (number 9) since 41 s: rank 1 on host-b did not \
                    answer: its line is slow, since bytes from it still arrive";
        check(&[waits], &[silent], &[1], text);
    }

    #[test]
    fn full_link_at_the_end_of_waits_is_named() {
        let ranks = [
            waiting(0, 9, Some((1, false))),
            waiting(1, 9, Some((2, true))),
            waiting(2, 9, None),
        ];
        let text = "3 ranks wait in all_reduce of 4 MiB (number 9) since 41 s: the link from rank 1 on \
                    host-0 to rank 2 takes no more bytes";
        check(&ranks, &[], &[1, 2], text);
    }

    #[test]
    fn fullest_link_of_a_circle_is_named() {
        let link = |global_rank, queued_bytes| LinkCounts {
            global_rank,
            queued_bytes,
            ..LinkCounts::default()
        };
        let mut ranks = [
            waiting(0, 9, Some((2, false))),
            waiting(1, 9, Some((0, false))),
            waiting(2, 9, Some((1, false))),
        ];
        ranks[0].links = vec![link(1, 3000)];
        ranks[1].links = vec![link(0, 0), link(2, 3 << 20)];
        let text = "3 ranks wait in all_reduce of 4 MiB (number 9) since 41 s: the link from rank 1 on \
                    host-0 to rank 2 is slow: 3 MiB wait in it";
        check(&ranks, &[], &[1, 2], text);
    }

    #[test]
    fn waits_in_a_circle_end() {
        let ranks = [
            waiting(0, 9, Some((1, false))),
            waiting(1, 9, Some((0, false))),
        ];
        assert_eq!(verdict(&ranks, &[]).waiting, 2);
    }

    #[test]
    fn job_without_groups_is_reported() {
        check(&[], &[], &[], "no group is open");
    }
}
