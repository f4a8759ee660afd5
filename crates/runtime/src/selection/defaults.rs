//! Default algorithms by group traits, memory class and message size, without measurements or user
//! choices.

use weft_algorithms::{MemoryClass, Reach};

use super::traits::GroupTraits;

/// Up to this size in bytes, one step with any number of messages is best on a network whose hosts
/// have separate cores.
const TINY_BYTES: u64 = 1 << 10;
/// Below this size a call is bound by latency, in bytes.
pub(crate) const SMALL_BYTES: u64 = 8 << 10;
/// The same between ranks that share memory.
const SMALL_MAPPED_BYTES: u64 = 2 << 10;
/// Up to this size in bytes, symmetric memory makes no difference, as everything is sent in one
/// step.
const SMALL_SYMMETRIC_BYTES: u64 = 2 << 10;
/// Up to this size in bytes, few messages matter more than few bytes on a network: a pair of ranks
/// exchanges everything.
const PAIRWISE_BYTES: u64 = 16 << 10;
/// The same for two ranks, whose whole messages are as many bytes as the halves that they would
/// exchange twice.
const TWO_RANKS_BYTES: u64 = 512 << 10;
/// The same between hosts with several ranks each, which share a message's bytes.
const RAILS_BYTES: u64 = 64 << 10;
/// Below this size in bytes, few steps matter more than few bytes on a network.
const MEDIUM_BYTES: u64 = 128 << 10;
/// Up to this size in bytes, hosts that share a machine exchange halves. (Beyond, a ring takes a
/// tenth less processor time on slow lines.)
const HALVES_BYTES: u64 = 1 << 20;
/// Up to this many ranks, latency-bound calls send everything to all ranks.
const DIRECT_RANKS: u32 = 16;

/// Up to this many ranks, those that map each other's memory use all of it, for which each is
/// linked to all others. With more ranks they use the algorithms for a network, with few peers
/// each, since all links of 256 ranks take gigabytes and minutes. Reproducible sums need all links
/// anyway.
const MAPPED_RANKS: u32 = 64;

/// The largest message in bytes, and the algorithms to try for it, best first.
pub(crate) type Preference = (u64, &'static [&'static str]);

/// The size in bytes up to which symmetric memory makes no difference to a collective.
pub(crate) fn small_symmetric_bytes(collective: &str) -> u64 {
    match collective {
        // All ranks would have to exchange positions of memory, which these collectives do not need
        // otherwise.
        "broadcast" | "reduce" | "gather" | "scatter" => SMALL_BYTES,
        _ => SMALL_SYMMETRIC_BYTES,
    }
}

/// The preferences for a collective, in ascending order of size. The last is for messages without a
/// limit.
pub(crate) fn preferences(
    collective: &str,
    traits: GroupTraits,
    memory: MemoryClass,
) -> Vec<Preference> {
    let few = traits.ranks <= DIRECT_RANKS;
    let traits = match traits.ranks > MAPPED_RANKS && !traits.reproducible {
        true => GroupTraits {
            reach: Reach::None,
            ..traits
        },
        false => traits,
    };
    if let (true, Some(preferences)) = (traits.delayed, over_delay(collective, traits)) {
        return preferences;
    }
    let apart = traits.uneven && !traits.mapped() && !traits.reproducible;
    if let (true, Some(preferences)) = (apart, across_hosts(collective)) {
        return preferences;
    }
    match collective {
        "all-reduce" => all_reduce(traits, few),
        "all-gather" | "reduce-scatter" => blocks(collective, traits, few, memory),
        "broadcast" if traits.mapped() && few => vec![
            (SMALL_BYTES, &["binomial"]),
            (u64::MAX, &["mapped", "binomial"]),
        ],
        "broadcast" if traits.mapped() => vec![(u64::MAX, &["mapped", "binomial"])],
        "reduce" if traits.reproducible => {
            vec![(u64::MAX, &["slice-reduce", "direct"])]
        }
        "reduce" if traits.mapped() && few => vec![
            (SMALL_BYTES, &["binomial"]),
            (u64::MAX, &["slice-reduce", "binomial"]),
        ],
        "reduce" if traits.mapped() => vec![(u64::MAX, &["slice-reduce", "binomial"])],
        "reduce" | "broadcast" => vec![(u64::MAX, &["binomial"])],
        "all-to-all" if traits.mapped() && few => {
            vec![(SMALL_BYTES, &["direct"]), (u64::MAX, &["pairwise"])]
        }
        "all-to-all" => vec![(u64::MAX, &["pairwise"])],
        "gather" | "scatter" if !few => {
            vec![
                (SMALL_BYTES, &["binomial", "linear"]),
                (u64::MAX, &["linear"]),
            ]
        }
        "gather" | "scatter" => vec![(u64::MAX, &["linear"])],
        _ if traits.mapped() && few => vec![(u64::MAX, &["direct"])],
        _ => vec![(u64::MAX, &["dissemination"])],
    }
}

/// The preferences where links have delay, and the latency of a message exceeds the time of most
/// messages' bytes: all ranks send to all, in the fewest steps. `None`: those of other groups.
///
/// The ring pays its 2 (P - 1) steps once if its tiles fill the links, but that needs P - 1 times
/// as many concurrent tiles.
fn over_delay(collective: &str, traits: GroupTraits) -> Option<Vec<Preference>> {
    let reproducible = traits.reproducible;
    Some(match collective {
        "all-reduce" if traits.uneven && !reproducible => vec![
            (SMALL_BYTES, &["direct", "two-shot"]),
            (
                u64::MAX,
                &[
                    "multi-rail(slice-reduce, two-shot)",
                    "multi-rail(ring, two-shot)",
                    "two-shot",
                ],
            ),
        ],
        "all-reduce" => vec![
            (SMALL_BYTES, &["direct", "two-shot"]),
            (u64::MAX, &["two-shot", "halving-doubling"]),
        ],
        // Between hosts with several ranks each, the other collectives have few steps already.
        _ if traits.uneven && !reproducible => return None,
        "all-gather" | "reduce-scatter" | "all-to-all" => vec![(u64::MAX, &["direct"])],
        _ => return None,
    })
}

/// The preferences between hosts with several ranks each, where every byte should cross between
/// hosts once, in few messages. `None`: those of other groups.
fn across_hosts(collective: &str) -> Option<Vec<Preference>> {
    Some(match collective {
        "broadcast" => vec![
            (SMALL_BYTES, &["binomial"]),
            (
                u64::MAX,
                &[
                    "leaders(mapped, binomial)",
                    "leaders(binomial, binomial)",
                    "binomial",
                ],
            ),
        ],
        "reduce" => vec![
            (SMALL_BYTES, &["binomial"]),
            (
                u64::MAX,
                &[
                    "leaders(slice-reduce, binomial)",
                    "leaders(binomial, binomial)",
                    "binomial",
                ],
            ),
        ],
        "all-gather" | "reduce-scatter" => vec![(u64::MAX, &["multi-rail", "ring", "direct"])],
        "all-to-all" => vec![
            (MEDIUM_BYTES, &["multi-rail", "pairwise"]),
            (u64::MAX, &["pairwise"]),
        ],
        "barrier" => vec![(u64::MAX, &["leaders"])],
        _ => return None,
    })
}

/// Up to this size an all-reduce is bound by latency, in bytes.
fn small_bytes(traits: GroupTraits) -> u64 {
    match traits.mapped() {
        true => SMALL_MAPPED_BYTES,
        false => SMALL_BYTES,
    }
}

fn all_reduce(traits: GroupTraits, few: bool) -> Vec<Preference> {
    if traits.reproducible {
        return vec![
            (small_bytes(traits), &["direct", "two-shot"]),
            (u64::MAX, &["slice-reduce", "two-shot"]),
        ];
    }
    if traits.mapped() {
        let small: &[&str] = match few {
            true => &["direct", "ring"],
            false => &["slice-reduce", "recursive-doubling", "ring"],
        };
        return vec![
            (small_bytes(traits), small),
            (u64::MAX, &["slice-reduce", "ring"]),
        ];
    }
    if traits.uneven {
        return all_reduce_across_hosts(few);
    }
    let pairs = few && traits.ranks.is_power_of_two();
    let below: &[Preference] = match traits.ranks {
        2 => &[(TWO_RANKS_BYTES, PAIRWISE)],
        // Messages cost processor time as well.
        _ if traits.crowded && pairs => &[(PAIRWISE_BYTES, PAIRWISE), (HALVES_BYTES, HALVES)],
        // Their bytes use the network.
        _ if pairs => &[
            (TINY_BYTES, DIRECT),
            (PAIRWISE_BYTES, PAIRWISE),
            (MEDIUM_BYTES, TWO_SHOT),
        ],
        _ if few => &[(SMALL_BYTES, DIRECT), (MEDIUM_BYTES, TWO_SHOT)],
        _ => &[(SMALL_BYTES, PAIRWISE), (MEDIUM_BYTES, HALVES)],
    };
    [below, &[(u64::MAX, LARGE)]].concat()
}

/// The preferences between hosts with several ranks each: every byte crosses between hosts once,
/// shared by all ranks of a host.
fn all_reduce_across_hosts(few: bool) -> Vec<Preference> {
    let small: &[&str] = match few {
        true => &["multi-rail(direct, recursive-doubling)", "direct", "ring"],
        false => PAIRWISE,
    };
    vec![
        (SMALL_BYTES, small),
        (
            RAILS_BYTES,
            &["multi-rail(direct, recursive-doubling)", "two-shot"],
        ),
        (
            MEDIUM_BYTES,
            &[
                "multi-rail(slice-reduce, ring)",
                "multi-rail(ring, ring)",
                "two-shot",
            ],
        ),
        (
            u64::MAX,
            &[
                "multi-rail(slice-reduce, ring)",
                "multi-rail(ring, ring)",
                "ring",
            ],
        ),
    ]
}

/// All ranks send everything to all.
const DIRECT: &[&str] = &["direct", "ring"];

/// All ranks send each other's slices, and their sums.
const TWO_SHOT: &[&str] = &["two-shot", "ring"];

/// Pairs of ranks exchange everything.
const PAIRWISE: &[&str] = &["recursive-doubling", "ring"];

/// Pairs of ranks exchange halves of halves: as many bytes as a ring, in fewer messages.
const HALVES: &[&str] = &["halving-doubling", "ring", "two-shot"];

/// Halving comes second, for numbers of ranks for which a ring's receive buffer does not fit.
const LARGE: &[&str] = &["ring", "halving-doubling", "two-shot"];

fn blocks(
    collective: &str,
    traits: GroupTraits,
    few: bool,
    memory: MemoryClass,
) -> Vec<Preference> {
    let gathers = collective == "all-gather";
    if traits.mapped() {
        let small = match memory {
            MemoryClass::Symmetric => SMALL_SYMMETRIC_BYTES,
            MemoryClass::Ordinary => SMALL_BYTES,
        };
        return match gathers {
            true if few => vec![
                (small, &["direct", "ring"]),
                (u64::MAX, &["mapped", "direct"]),
            ],
            false if memory == MemoryClass::Symmetric => vec![
                (small, &["direct", "ring"]),
                (u64::MAX, &["slice-reduce", "direct"]),
            ],
            true => vec![(u64::MAX, &["mapped", "direct"])],
            false => vec![(u64::MAX, &["direct", "ring"])],
        };
    }
    if traits.reproducible && !gathers {
        return vec![(u64::MAX, &["direct"])];
    }
    let few_messages: &[&str] = match gathers {
        true => &["bruck", "ring", "direct"],
        false => &["halving", "ring", "direct"],
    };
    let direct: Preference = (MEDIUM_BYTES, &["direct", "ring"]);
    let large: Preference = (u64::MAX, &["ring", "direct"]);
    match (few, traits.crowded, gathers) {
        (true, false, _) => vec![direct, large],
        (true, true, false) => vec![(PAIRWISE_BYTES, few_messages), direct, large],
        _ => vec![(MEDIUM_BYTES, few_messages), large],
    }
}

#[cfg(test)]
mod tests {
    use weft_algorithms::{Parts, Topology, select};
    use weft_schedule::Collective;

    use super::super::candidates::{CallKind, Candidate};
    use super::*;
    use weft_call::Tiling;

    /// All combinations of group traits, with both classes of memory where a group can have both.
    fn cases() -> impl Iterator<Item = (GroupTraits, MemoryClass)> {
        let able = |(traits, memory): &(GroupTraits, MemoryClass)| {
            *memory == MemoryClass::Ordinary || traits.mapped()
        };
        let classes = [MemoryClass::Ordinary, MemoryClass::Symmetric];
        let both = (settings().into_iter()).flat_map(move |s| classes.map(|memory| (s, memory)));
        both.filter(able)
    }

    fn settings() -> Vec<GroupTraits> {
        let mut settings = Vec::new();
        for ranks in [1, 2, 4, 9, 40, 100] {
            for reach in [Reach::None, Reach::Unit, Reach::All] {
                for (uneven, reproducible) in
                    [(false, false), (true, false), (false, true), (true, true)]
                {
                    for (delayed, crowded) in
                        [(false, false), (false, true), (true, false), (true, true)]
                    {
                        settings.push(GroupTraits {
                            ranks,
                            reach,
                            uneven,
                            reproducible,
                            delayed: delayed && reach != Reach::All,
                            crowded,
                        });
                    }
                }
            }
        }
        settings
    }

    #[test]
    fn defaults_name_known_algorithms_without_gaps() {
        for (traits, memory) in cases() {
            for collective in Collective::NAMES {
                let preferences = preferences(collective, traits, memory);
                let limits: Vec<u64> = preferences.iter().map(|(up_to, _)| *up_to).collect();
                assert!(limits.windows(2).all(|pair| pair[0] < pair[1]));
                assert_eq!(limits.last(), Some(&u64::MAX));
                for name in preferences.iter().flat_map(|(_, names)| *names) {
                    select(collective, name).unwrap();
                }
            }
        }
    }

    #[test]
    fn preferences_across_hosts_need_several_ranks_per_host() {
        for (traits, memory) in cases() {
            for collective in Collective::NAMES {
                let all = preferences(collective, traits, memory);
                let mut names = all.iter().flat_map(|(_, names)| *names);
                let for_units = names.any(|name| {
                    let parts = select(collective, name).unwrap().algorithm.requires.parts;
                    matches!(parts, Parts::Levels { .. } | Parts::Units)
                });
                assert!(!for_units || traits.uneven, "{collective} {traits:?}");
                let chosen = !matches!(collective, "gather" | "scatter");
                let apart = traits.uneven && !traits.mapped() && !traits.reproducible;
                assert!(for_units || !(apart && chosen), "{collective} {traits:?}");
            }
        }
    }

    #[test]
    fn delayed_links_use_direct_others_use_a_ring() {
        let first = |collective, ranks, delayed, bytes| {
            let traits = GroupTraits {
                ranks,
                reach: Reach::None,
                uneven: false,
                reproducible: false,
                delayed,
                crowded: false,
            };
            let preferences = preferences(collective, traits, MemoryClass::Ordinary);
            let line = preferences.iter().find(|(up_to, _)| bytes <= *up_to);
            line.map(|(_, names)| names[0]).unwrap()
        };
        for (collective, over_delay, without) in [
            ("all-reduce", "two-shot", "ring"),
            ("all-gather", "direct", "ring"),
            ("reduce-scatter", "direct", "ring"),
            ("all-to-all", "direct", "pairwise"),
        ] {
            for ranks in [2, 4, 40] {
                assert_eq!(first(collective, ranks, true, 64 << 20), over_delay);
                assert_eq!(first(collective, ranks, false, 64 << 20), without);
            }
        }
        assert_eq!(first("all-reduce", 40, true, 4), "direct");
        assert_eq!(first("all-reduce", 40, false, 4), "recursive-doubling");
    }

    #[test]
    fn hosts_that_share_a_machine_send_few_messages() {
        let first = |ranks, crowded| {
            let traits = GroupTraits {
                ranks,
                reach: Reach::None,
                uneven: false,
                reproducible: false,
                delayed: false,
                crowded,
            };
            preferences("all-reduce", traits, MemoryClass::Ordinary)[0].1[0]
        };
        for (ranks, crowded, apart) in [
            (2, "recursive-doubling", "recursive-doubling"),
            (3, "direct", "direct"),
            (4, "recursive-doubling", "direct"),
        ] {
            assert_eq!(first(ranks, true), crowded);
            assert_eq!(first(ranks, false), apart);
        }
    }

    #[test]
    fn many_mapped_ranks_have_few_peers_each() {
        let traits = |ranks, reproducible| GroupTraits {
            ranks,
            reach: Reach::All,
            uneven: false,
            reproducible,
            delayed: false,
            crowded: false,
        };
        let names = |collective, traits| -> Vec<&str> {
            let all = preferences(collective, traits, MemoryClass::Ordinary);
            all.iter().map(|(_, names)| names[0]).collect()
        };
        assert_eq!(names("all-reduce", traits(64, false)), ["slice-reduce"; 2]);
        assert_eq!(names("all-reduce", traits(65, true))[1], "slice-reduce");
        for collective in Collective::NAMES {
            for name in names(collective, traits(65, false)) {
                let few = ["ring", "halving", "bruck", "binomial", "dissemination"];
                let few = [&few[..], &["recursive-doubling", "halving-doubling"]].concat();
                // In these, each rank has data for every other, or for the root.
                let all = [
                    ("all-to-all", "pairwise"),
                    ("gather", "linear"),
                    ("scatter", "linear"),
                ];
                assert!(
                    few.contains(&name) || all.contains(&(collective, name)),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn defaults_have_an_algorithm_for_every_call() {
        for (traits, memory) in cases() {
            for collective in Collective::NAMES {
                for (_, names) in preferences(collective, traits, memory) {
                    let usable = |name: &&str| {
                        let selection = select(collective, name).unwrap();
                        let candidate = Candidate::family(
                            collective,
                            selection,
                            Tiling::default(),
                            &Topology::flat(traits.ranks),
                        );
                        let kind = CallKind {
                            memory: MemoryClass::Ordinary,
                            per_rank: false,
                            wire: weft_schedule::WireFormat::Full,
                        };
                        candidate.refusal(traits, kind).is_none()
                    };
                    assert!(
                        names.iter().any(usable),
                        "{collective} {names:?} {traits:?}"
                    );
                }
            }
        }
    }
}
