//! Tests of the choice for a call by names, options, profiles and defaults, the same on all ranks.

mod ranks;

use std::collections::BTreeMap;

use ranks::Ranks;
use ranks::Setup;
use ranks::arena::perform;
use ranks::case::Case;
use ranks::judge::check;
use ranks::requested::{
    ALL_REDUCE, by, forced, name_of, profile, row, run, setup, until_all_have_met,
};
use weft_algorithms::{Selection, Topology, family};
use weft_kernels::DType;
use weft_runtime::{
    Cipher, Encryption, Error, MemoryClass, Policy, SplitOptions, Tiling, TransportChoice,
};
use weft_schedule::Collective;

#[test]
fn profile_of_rank_0_applies_to_all_ranks() {
    let rows = || {
        vec![
            row(Some(1000), "two-shot", None),
            row(None, "ring", Some(4096)),
        ]
    };
    let setup = setup(
        TransportChoice::Shm,
        Policy::default(),
        vec![profile(&[2, 1], false, rows()), profile(&[3], true, rows())],
    );
    let plans = Ranks::run(setup, 3, |group| {
        perform(&Case::simple(ALL_REDUCE, 5000), group, None);
        let explain = |bytes| {
            group
                .explain(ALL_REDUCE, bytes, DType::F32, MemoryClass::Ordinary)
                .unwrap()
        };
        (explain(1000), explain(1004), name_of(group, 1 << 20))
    });
    let (small, large, huge) = &plans[0];
    assert_eq!(small.algorithm, "two-shot");
    assert_eq!((large.algorithm.as_str(), huge.as_str()), ("ring", "ring"));
    assert_eq!(large.requested.tile_bytes, Some(4096));
    assert!(large.why[0].contains("the profile's choice"), "{large:?}");
    assert!(plans.iter().all(|plan| *plan == plans[0]));
}

#[test]
fn profile_for_other_hosts_is_refused_or_ignored() {
    let profiles = |required| vec![profile(&[2, 1], required, vec![row(None, "ring", None)])];
    let optional = setup(TransportChoice::Shm, Policy::default(), profiles(false));
    let names = Ranks::run(optional, 3, |group| name_of(group, 1 << 20));
    assert_eq!(names, ["slice-reduce"; 3]);
    let required = setup(TransportChoice::Shm, Policy::default(), profiles(true));
    for error in ranks::refusals(&[required.clone(), required.clone(), required]) {
        let text = error.to_string();
        assert!(matches!(error, Error::Config(_)), "{text}");
        assert!(text.contains("[2, 1]") && text.contains("[3]"), "{text}");
    }
}

#[test]
fn call_precedes_policy_and_policy_precedes_profile() {
    let rows = vec![row(None, "two-shot", None)];
    let setup = setup(
        TransportChoice::Loopback,
        forced(&[("all-reduce", "ring")]),
        vec![profile(&[4], true, rows)],
    );
    let names = Ranks::run(setup, 4, |group| {
        perform(&Case::simple(ALL_REDUCE, 10), group, None);
        perform(&by("direct", 10), group, None);
        let half = group.split(&[1, 3], "half", SplitOptions::default());
        let free = SplitOptions {
            algorithms: Some(BTreeMap::new()),
            ..SplitOptions::default()
        };
        let freed = group.split(&[0, 1, 2, 3], "free", free).unwrap().unwrap();
        let half = half.unwrap().map(|half| name_of(&half, 1 << 20));
        until_all_have_met(&freed);
        (name_of(group, 8), half, name_of(&freed, 8))
    });
    for (rank, (name, half, freed)) in names.iter().enumerate() {
        assert_eq!((name.as_str(), freed.as_str()), ("ring", "two-shot"));
        let inherits = (rank % 2 == 1).then_some("ring");
        assert_eq!(half.as_deref(), inherits);
    }
}

/// Also between ranks that share memory, where a schedule may run on the calling thread of one rank
/// and not of another.
#[test]
fn every_all_reduce_can_be_forced() {
    for ranks in [2, 3, 5] {
        let names = family("all-reduce", &Topology::flat(ranks));
        for name in names.iter().map(Selection::name) {
            let policy = forced(&[("all-reduce", &name)]);
            let setup = setup(TransportChoice::Loopback, policy, vec![]);
            let outputs = Ranks::run(setup, ranks, |group| {
                [1, 1000, 50_000]
                    .map(|count| perform(&Case::simple(ALL_REDUCE, count), group, None))
            });
            assert!(outputs.iter().all(|output| *output == outputs[0]), "{name}");
        }
    }
}

#[test]
fn different_algorithm_options_are_refused_on_all_ranks() {
    let [ring, direct] = ["ring", "direct"].map(|name| {
        let policy = forced(&[("all-reduce", name)]);
        setup(TransportChoice::Loopback, policy, vec![])
    });
    let errors = ranks::refusals(&[ring.clone(), direct]);
    for (error, mine) in errors.iter().zip(["ring", "direct"]) {
        assert!(matches!(error, Error::Config(_)), "{error}");
        let expected = format!("this rank all-reduce={mine}");
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(
            error
                .to_string()
                .contains("was given algorithm all-reduce=")
        );
    }
    let policy = Policy {
        reproducible: true,
        ..Policy::default()
    };
    let other = setup(TransportChoice::Loopback, policy, vec![]);
    let errors = ranks::refusals(&[Setup::from(TransportChoice::Loopback), other]);
    assert!(
        errors[0].to_string().contains("reproducible=true"),
        "{errors:?}"
    );
}

#[test]
fn different_encryption_is_refused_on_all_ranks() {
    let check = |[a, b]: [Encryption; 2]| {
        let setups = [a, b].map(|encryption| Setup {
            encryption,
            ..TransportChoice::Tcp.into()
        });
        for (error, [theirs, mine]) in ranks::refusals(&setups).iter().zip([[b, a], [a, b]]) {
            let expected =
                format!("was given the option encrypt={theirs}, this rank encrypt={mine}");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    };
    let [aes, chacha] = [Cipher::AesGcm, Cipher::ChaCha20Poly1305].map(Encryption::Only);
    check([Encryption::Off, Encryption::Best]);
    check([aes, chacha]);
    check([Encryption::Best, aes]);
}

#[test]
fn invalid_options_are_refused_by_name() {
    let refused = |policy: Policy, expected: &[&str]| {
        let setup = setup(TransportChoice::Loopback, policy, vec![]);
        for error in ranks::refusals(&[setup.clone(), setup]) {
            let text = error.to_string();
            assert!(matches!(error, Error::Config(_)), "{text}");
            assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        }
    };
    refused(
        forced(&[("all-reduce", "rings")]),
        &["\"rings\"", "two-shot"],
    );
    refused(
        forced(&[("all-reduces", "ring")]),
        &["\"all-reduces\"", "reduce-scatter"],
    );
    let mut impossible = forced(&[("all-reduce", "ring")]);
    impossible.reproducible = true;
    refused(impossible, &["\"ring\"", "that support it", "two-shot"]);
    let levels = |levels: &[&[u32]]| Policy {
        levels: levels.iter().map(|level| level.to_vec()).collect(),
        ..Policy::default()
    };
    refused(levels(&[&[0, 0, 0]]), &["3 ranks", "has 2"]);
    refused(levels(&[&[0, 0], &[0, 1]]), &["ranks 0 and 1"]);
    let domains = |levels: &[&[u32]]| Policy {
        domains: Some(levels.iter().map(|level| level.to_vec()).collect()),
        ..Policy::default()
    };
    refused(domains(&[&[0, 0, 0]]), &["domains", "3 ranks", "are 2"]);
    refused(domains(&[&[0, 0], &[0, 1]]), &["ranks 0 and 1"]);
}

#[test]
fn tiles_have_the_requested_size_and_number() {
    let results = Ranks::run(TransportChoice::Shm, 3, |group| {
        let tiled = |tile_bytes, tiles_in_flight| Case {
            tiling: Tiling {
                tile_bytes,
                tiles_in_flight,
            },
            ..by("ring", 30_000)
        };
        let outputs = [
            tiled(None, None),
            tiled(Some(1000), None),
            tiled(Some(1000), Some(1)),
            tiled(Some(1 << 40), Some(2)),
        ]
        .map(|case| run(group, &case).unwrap());
        let wrong = [
            tiled(Some(0), None),
            tiled(None, Some(0)),
            tiled(None, Some(3)),
        ]
        .map(|case| run(group, &case).unwrap_err());
        (outputs, wrong)
    });
    let (outputs, wrong) = &results[0];
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    assert!(
        wrong.iter().all(|e| matches!(e, Error::Config(_))),
        "{wrong:?}"
    );
    assert!(
        wrong[2].to_string().contains("tiles_in_flight=3"),
        "{wrong:?}"
    );
}

#[test]
fn different_algorithms_are_a_desync_with_both_names() {
    let errors = Ranks::run(TransportChoice::Loopback, 2, |group| {
        let name = if group.rank() == 0 {
            "ring"
        } else {
            "two-shot"
        };
        run(group, &by(name, 1000)).unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        assert!(
            text.contains("by ring") && text.contains("by two-shot"),
            "{text}"
        );
    }
}

/// Also after equal calls, which all ranks run on the calling thread.
#[test]
fn algorithm_named_by_one_rank_is_a_desync() {
    for ranks in [2, 3] {
        let names = family("all-reduce", &Topology::flat(ranks));
        for name in names.iter().map(Selection::name) {
            let errors = Ranks::run(TransportChoice::Loopback, ranks, |group| {
                let (named, chosen) = (by(&name, 10), Case::simple(ALL_REDUCE, 10));
                let last = if group.rank() == 1 { &named } else { &chosen };
                // A rank may be notified before it has ended the previous call.
                let calls = [&named, &chosen, &named, &chosen, last];
                let results = calls.map(|case| run(group, case));
                results.into_iter().find_map(Result::err)
            });
            for error in errors {
                // A call may name the default choice.
                let Some(error) = error.filter(|_| name != "direct") else {
                    assert_eq!(name, "direct");
                    continue;
                };
                let text = error.to_string();
                assert!(matches!(error, Error::Desync { .. }), "{text}");
                let both = [format!("by {name}"), "by direct".to_owned()];
                assert!(both.iter().all(|by| text.contains(by)), "{text}");
            }
        }
    }
}

#[test]
fn explanation_names_rejected_candidates() {
    let hosts = Setup::on_hosts(&[0, 0, 1, 1]);
    let why = Ranks::run(hosts, 4, |group| {
        let explained = group.explain(ALL_REDUCE, 1 << 24, DType::F32, MemoryClass::Ordinary);
        explained.unwrap().why
    });
    assert_eq!(
        why[0][0],
        "multi-rail(slice-reduce, ring): chosen, the built-in default for messages without a limit"
    );
    assert!(why[0].contains(&"slice-reduce: refused: needs all ranks on one host".to_owned()));
    assert!(why.iter().all(|reasons| *reasons == why[0]));
}

/// Ranks that a schedule does not communicate with have slots too.
#[test]
fn first_call_may_involve_few_ranks() {
    for ranks in 6..=9 {
        let broadcast = Collective::Broadcast { root: 0 };
        let case = Case::simple(broadcast, 5);
        let outputs = Ranks::run(TransportChoice::Shm, ranks, |group| {
            let outputs = perform(&case, group, None);
            until_all_have_met(group);
            outputs
        });
        check(&case, &outputs);
    }
}

/// Such calls exchange no positions, as the collectives do not make all ranks wait for all others.
#[test]
fn short_rooted_calls_ignore_symmetric_memory() {
    let root = 1;
    let ranks = 3;
    for (collective, blocks) in [
        (Collective::Broadcast { root }, 1),
        (Collective::Reduce { root }, 1),
        (Collective::Gather { root }, ranks),
        (Collective::Scatter { root }, ranks),
    ] {
        // 8 KiB are 2048 elements; three blocks divide 2046 and 2049.
        for (elements, symmetric) in [(3, 0), (2046, 0), (2049, 1), (30_000, 1)] {
            let case = Case {
                symmetric: true,
                // A reduction out of place does not write other ranks' vectors.
                in_place: blocks == 1,
                ..Case::simple(collective, elements / blocks)
            };
            let outputs = Ranks::run(TransportChoice::Shm, ranks as u32, |group| {
                let memory = group.symmetric(1 << 20).unwrap();
                let outputs = perform(&case, group, Some(&memory));
                assert_eq!(group.symmetric_operations(), symmetric, "{case:?}");
                until_all_have_met(group);
                outputs
            });
            check(&case, &outputs);
        }
    }
}
