//! Tests of user schedules: added to a group, or given by its options or a profile, and the same on
//! all ranks.

mod ranks;

use std::collections::BTreeMap;

use ranks::arena::{Arena, perform};
use ranks::case::Case;
use ranks::judge::check;
use ranks::requested::{
    ALL_REDUCE, by, forced, name_of, profile, programs, programs_for, row, run, setup,
    until_all_have_met,
};
use ranks::{Ranks, Setup};
use weft_algorithms::MemoryClass;
use weft_kernels::DType;
use weft_runtime::{Error, Policy, Profile, Schedules, SplitOptions, TransportChoice};
use weft_schedule::{Collective, Schedule, parse, print};
use weft_transport_testing::strict;

/// Schedules by name: each is one of weft's algorithms for all-reduce under another name.
fn texts(pairs: &[(&str, &str)], ranks: u32) -> Schedules {
    let text =
        |(name, of): &(&str, &str)| (name.to_string(), print(&programs(of, ALL_REDUCE, ranks)));
    pairs.iter().map(text).collect()
}

/// A policy with schedules that only allows these algorithms.
fn bringing(schedules: Schedules, algorithms: &[(&str, &str)]) -> Policy {
    Policy {
        schedules,
        ..forced(algorithms)
    }
}

/// A broadcast from rank 1 to rank 0.
const FROM_1: &str = "format 2\ncollective broadcast from 1\nranks 2\ngrid equal 1\nreceive 1\n\n\
                      rank 0\n  wait 1 #0\n  copy output[0] <- receive(1:0)[0]\n\
                      rank 1\n  copy 0.receive(1:0)[0] <- output[0]\n  signal 0 #0\n";

/// All-reduce of two ranks that exchange their vectors as 32-bit floats, for any element type.
fn as_f32() -> Vec<Schedule> {
    let header =
        "format 2\ncollective all-reduce\nranks 2\ngrid equal 1\nscratch 1 1 1\nreceive 1\n\n";
    let program = |rank: u32, both: &str| {
        let peer = 1 - rank;
        format!(
            "rank {rank}\n  copy scratch(0)[0]:f32 <- output[0]\n  \
             copy {peer}.receive({rank}:0)[0]:f32 <- scratch(0)[0]:f32\n  signal {peer} #0\n  \
             wait {peer} #0\n  copy scratch(1)[0] <- scratch(0)[0]:f32\n  \
             copy scratch(2)[0] <- receive({peer}:0)[0]:f32\n  \
             reduce output[0] <- {both} final\n"
        )
    };
    let first = program(0, "scratch(1)[0] + scratch(2)[0]");
    let second = program(1, "scratch(2)[0] + scratch(1)[0]");
    parse(&format!("{header}{first}{second}")).unwrap()
}

/// Checks that all ranks of this meeting are refused, with these words.
fn all_refused(setups: &[Setup], expected: &[&str]) {
    for error in ranks::refusals(setups) {
        let text = error.to_string();
        assert!(matches!(error, Error::Config(_)), "{text}");
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn user_schedule_runs_like_any_other() {
    for transport in [TransportChoice::Shm, TransportChoice::Tcp] {
        let case = by("mine", 1000);
        let outputs = Ranks::run(transport, 3, |group| {
            let add = |name: &str, of: &str| group.add_schedule(name, programs(of, ALL_REDUCE, 3));
            add("mine", "ring").unwrap();
            add("mine", "ring").unwrap();
            for (taken, of) in [("mine", "two-shot"), ("ring", "ring")] {
                let error = add(taken, of).unwrap_err().to_string();
                assert!(error.contains("is taken"), "{error}");
            }
            let rooted = Collective::Broadcast { root: 1 };
            let mapped = group.add_schedule("read", programs("mapped", rooted, 3));
            let unknown = run(group, &by("yours", 10)).unwrap_err().to_string();
            assert!(unknown.contains("user schedules: mine"), "{unknown}");
            (run(group, &case).unwrap(), mapped)
        });
        let (outputs, mapped): (Vec<_>, Vec<_>) = outputs.into_iter().unzip();
        check(&case, &outputs);
        // Over TCP no rank reads another rank's memory.
        let refused = mapped.iter().filter(|mapped| mapped.is_err()).count();
        let expected = if matches!(transport, TransportChoice::Tcp) {
            3
        } else {
            0
        };
        assert_eq!(refused, expected, "{mapped:?}");
    }
}

#[test]
fn incorrect_schedule_is_refused_with_the_verifiers_message() {
    Ranks::run(TransportChoice::Loopback, 2, |group| {
        let refusal = |schedules| {
            let error = group.add_schedule("mine", schedules).unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{error}");
            error.to_string()
        };
        let mut cut = programs("ring", ALL_REDUCE, 2);
        cut[1].steps.pop();
        let text = refusal(cut);
        assert!(
            text.contains("\"mine\" is refused") && text.contains("rank"),
            "{text}"
        );
        let text = refusal(programs("ring", ALL_REDUCE, 3));
        assert!(
            text.contains("3 programs") && text.contains("2 ranks"),
            "{text}"
        );
        let named = group.add_schedule("all mine", programs("ring", ALL_REDUCE, 2));
        assert!(matches!(named, Err(Error::Config(_))));
    });
}

#[test]
fn rooted_schedule_is_for_its_root_only() {
    let schedules = parse(FROM_1).unwrap();
    Ranks::run(TransportChoice::Tcp, 2, |group| {
        group.add_schedule("mine", schedules.clone()).unwrap();
        let from = |root| Case {
            algorithm: Some("mine".into()),
            ..Case::simple(Collective::Broadcast { root }, 100)
        };
        run(group, &from(1)).unwrap();
        let error = run(group, &from(0)).unwrap_err().to_string();
        assert!(error.contains("is for broadcast from 1"), "{error}");
    });
}

#[test]
fn put_is_measured_in_its_encoding() {
    let schedules = as_f32();
    for transport in [
        TransportChoice::Loopback,
        TransportChoice::Custom(strict),
        TransportChoice::Shm,
        TransportChoice::Tcp,
    ] {
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            let case = Case {
                dtype,
                ..by("mine", 10_001)
            };
            let outputs = Ranks::run(transport, 2, |group| {
                group.add_schedule("mine", schedules.clone()).unwrap();
                run(group, &case).unwrap()
            });
            check(&case, &outputs);
        }
    }
}

#[test]
fn encodings_that_lose_values_are_refused() {
    let schedules = as_f32();
    let text = print(&schedules);
    for transport in [TransportChoice::Loopback, TransportChoice::Tcp] {
        Ranks::run(transport, 2, |group| {
            group.add_schedule("mine", schedules.clone()).unwrap();
            let halves = parse(&text.replace(":f32", ":bf16")).unwrap();
            group.add_schedule("halves", halves).unwrap();
            run(group, &by("mine", 100)).unwrap();
            run(group, &by("halves", 100)).unwrap();
            for (name, dtype) in [("mine", DType::I32), ("halves", DType::F16)] {
                let case = Case {
                    dtype,
                    ..by(name, 100)
                };
                let error = run(group, &case).unwrap_err().to_string();
                let expected = format!("{name:?} converts elements to encodings that are not for");
                assert!(error.contains(&expected), "{error}");
            }
            let scaled = parse(&text.replace(":f32", ":e4m3")).unwrap();
            let error = group
                .add_schedule("eighths", scaled)
                .unwrap_err()
                .to_string();
            assert!(error.contains("has slices of 8-bit floats"), "{error}");
        });
    }
}

#[test]
fn different_schedules_under_one_name_are_a_desync() {
    let errors = Ranks::run(TransportChoice::Shm, 2, |group| {
        let of = if group.rank() == 0 {
            "ring"
        } else {
            "two-shot"
        };
        group
            .add_schedule("mine", programs(of, ALL_REDUCE, 2))
            .unwrap();
        run(group, &by("mine", 1000)).unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, Error::Desync { .. }), "{text}");
        assert!(text.contains("by mine"), "{text}");
        assert!(text.contains("schedule that rank "), "{text}");
        assert!(text.contains(" does not know"), "{text}");
    }
}

#[test]
fn profile_with_schedules_gives_the_same_plan_everywhere() {
    let rows = || vec![row(Some(4096), "mine", None), row(None, "ring", None)];
    let with_schedules = Profile {
        schedules: texts(&[("mine", "two-shot")], 3),
        ..profile(&[3], true, rows())
    };
    let setup = setup(
        TransportChoice::Shm,
        Policy::default(),
        vec![with_schedules],
    );
    let case = Case::simple(ALL_REDUCE, 1000);
    let found = Ranks::run(setup, 3, |group| {
        let output = run(group, &case).unwrap();
        let explained = group
            .explain(ALL_REDUCE, 4000, DType::F32, MemoryClass::Ordinary)
            .unwrap();
        // The same program may be added again.
        let again = programs("two-shot", ALL_REDUCE, 3);
        group.add_schedule("mine", again).unwrap();
        let half = group.split(&[0, 2], "half", SplitOptions::default());
        let half = half.unwrap().map(|half| name_of(&half, 8));
        until_all_have_met(group);
        (output, (explained, half))
    });
    let (outputs, found): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    check(&case, &outputs);
    let (explained, _) = &found[0];
    assert_eq!(explained.algorithm, "mine");
    assert!(
        explained.why[0].contains("the profile's choice"),
        "{explained:?}"
    );
    assert!(found.iter().all(|(other, _)| other == explained));
    // The profile is not for two ranks.
    assert!(
        found[1].1.is_none() && found[2].1.as_deref() == Some("direct"),
        "{found:?}"
    );
    // Added by hand, it is the same plan.
    let text = explained.schedule.clone().unwrap();
    let hashes = Ranks::run(TransportChoice::Shm, 3, |group| {
        group.add_schedule("mine", parse(&text).unwrap()).unwrap();
        let options = SplitOptions {
            algorithms: Some(forced(&[("all-reduce", "mine")]).algorithms),
            schedules: Some(BTreeMap::from([("mine".to_owned(), text.clone())])),
            ..SplitOptions::default()
        };
        let child = group.split(&[0, 1, 2], "child", options).unwrap().unwrap();
        until_all_have_met(&child);
        child
            .explain(ALL_REDUCE, 4000, DType::F32, MemoryClass::Ordinary)
            .unwrap()
            .hash
    });
    assert_eq!(hashes, [explained.hash; 3]);
}

#[test]
fn schedules_in_options_may_be_forced() {
    for transport in [TransportChoice::Shm, TransportChoice::Tcp] {
        let policy = bringing(texts(&[("mine", "ring")], 4), &[("all-reduce", "mine")]);
        let case = Case::simple(ALL_REDUCE, 100);
        let found = Ranks::run(setup(transport, policy, vec![]), 4, |group| {
            let output = run(group, &case).unwrap();
            // Groups with the same number of ranks inherit it; others use the defaults.
            let split = |ranks: &[u32]| {
                let child = group.split(ranks, "child", SplitOptions::default());
                child.unwrap().map(|child| {
                    until_all_have_met(&child);
                    name_of(&child, 1 << 20)
                })
            };
            let names = (name_of(group, 8), split(&[3, 2, 1, 0]), split(&[0, 1]));
            let known = group.schedules().unwrap();
            assert_eq!(known[0].name, "mine");
            (output, names)
        });
        let (outputs, names): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        check(&case, &outputs);
        assert!(
            names
                .iter()
                .all(|(all, same, _)| all == "mine" && same.as_deref() == Some("mine"))
        );
        let free = names[0].2.as_deref().unwrap();
        assert!(["slice-reduce", "ring"].contains(&free), "{free}");
    }
}

#[test]
fn different_schedules_are_refused_on_all_ranks() {
    let with = |of: &str| {
        let policy = bringing(texts(&[("mine", of)], 2), &[]);
        setup(TransportChoice::Loopback, policy, vec![])
    };
    all_refused(
        &[with("ring"), with("two-shot")],
        &["was given schedules (name=hash) mine=", "this rank mine="],
    );
    all_refused(
        &[with("ring"), Setup::from(TransportChoice::Loopback)],
        &["schedules (name=hash)", "(none)"],
    );
}

#[test]
fn unsupported_schedules_are_refused_at_the_rendezvous() {
    let refused = |schedules: Schedules, expected: &[&str]| {
        let setup = setup(TransportChoice::Loopback, bringing(schedules, &[]), vec![]);
        all_refused(&[setup.clone(), setup], expected);
    };
    let named = |name: &str, text: &str| Schedules::from([(name.to_owned(), text.to_owned())]);
    refused(
        texts(&[("mine", "ring")], 3),
        &["\"mine\"", "3 programs", "2 ranks"],
    );
    refused(
        texts(&[("ring", "ring")], 2),
        &["\"ring\" is taken", "weft's"],
    );
    refused(named("mine", "collective nothing"), &["\"mine\"", "line 1"]);
    refused(
        named("mine", &FROM_1.replace("signal", "wait")),
        &["\"mine\" is refused"],
    );
    refused(named("all mine", FROM_1), &["letters"]);
}

#[test]
fn profiles_invalid_schedules_are_refused_or_ignored() {
    let rows = || vec![row(None, "mine", None)];
    let spoilt = |required| Profile {
        schedules: texts(&[("mine", "ring")], 3),
        ..profile(&[2], required, rows())
    };
    let with =
        |profile: Profile, policy: Policy| setup(TransportChoice::Shm, policy, vec![profile]);
    let required = with(spoilt(true), Policy::default());
    all_refused(
        &[required.clone(), required],
        &["a test's profile", "3 programs"],
    );
    let names = Ranks::run(with(spoilt(false), Policy::default()), 2, |group| {
        name_of(group, 1 << 20)
    });
    assert_eq!(names, ["slice-reduce"; 2]);
    let with_schedules = Profile {
        schedules: texts(&[("mine", "ring")], 2),
        ..profile(&[2], true, rows())
    };
    let other = with(
        with_schedules,
        bringing(texts(&[("mine", "two-shot")], 2), &[]),
    );
    all_refused(
        &[other.clone(), other],
        &["a test's profile", "\"mine\" is taken"],
    );
}

#[test]
fn profiles_rooted_schedule_leaves_defaults_for_other_roots() {
    let with_schedules = Profile {
        schedules: BTreeMap::from([("mine".to_owned(), FROM_1.to_owned())]),
        table: BTreeMap::from([("broadcast".to_owned(), vec![row(None, "mine", None)])]),
        ..profile(&[2], true, vec![])
    };
    let why = Ranks::run(
        setup(
            TransportChoice::Shm,
            Policy::default(),
            vec![with_schedules],
        ),
        2,
        |group| {
            for root in [0, 1, 0] {
                run(group, &Case::simple(Collective::Broadcast { root }, 100)).unwrap();
            }
            let of = |root| {
                let collective = Collective::Broadcast { root };
                group
                    .explain(collective, 1000, DType::F32, MemoryClass::Ordinary)
                    .unwrap()
            };
            assert_eq!(of(1).algorithm, "mine");
            of(0).why
        },
    );
    assert!(why[0][0].contains("built-in default"), "{why:?}");
    let refusal =
        "mine: refused: the schedule \"mine\" is for broadcast from 1, not for broadcast from 0";
    assert!(why[0].contains(&refusal.to_owned()), "{why:?}");
}

#[test]
fn schedule_on_symmetric_memory_refuses_ordinary_memory() {
    let policy = bringing(
        Schedules::from([("mine".to_owned(), print(&in_place(3)))]),
        &[("all-reduce", "mine")],
    );
    let forced = setup(TransportChoice::Shm, policy, vec![]);
    for (setup, is_forced) in [(Setup::from(TransportChoice::Shm), false), (forced, true)] {
        let symmetric = |count| Case {
            symmetric: true,
            ..by("mine", count)
        };
        let outputs = Ranks::run(setup, 3, |group| {
            group.add_schedule("mine", in_place(3)).unwrap();
            let early = run(group, &by("mine", 10)).unwrap_err().to_string();
            assert!(early.contains("needs symmetric memory"), "{early}");
            let memory = group.symmetric(1 << 20).unwrap();
            let run_there = |count: usize, offset: usize| {
                let case = symmetric(count);
                let arena = Arena::new(&case, group, Some((&memory, offset)));
                let work = arena.issue(&case, group, false).unwrap();
                work.wait(None, &mut || false).map(|_| arena.finish())
            };
            // Refused on all ranks without breaking the group: ordinary memory on one rank, and a
            // different position.
            let apart = |rank: u32| if group.rank() == rank { 4096 } else { 0 };
            let elsewhere = run_there(1000, apart(1)).unwrap_err();
            let mixed = match group.rank() {
                0 => run(group, &by("mine", 1000)).unwrap_err(),
                _ => run_there(1000, 0).unwrap_err(),
            };
            for error in [elsewhere, mixed] {
                assert!(error.to_string().contains("\"mine\""), "{error}");
                assert!(matches!(error, Error::Config(_)), "{error}");
                assert!(
                    error.to_string().contains("needs symmetric memory"),
                    "{error}"
                );
            }
            if is_forced {
                // Forced for all calls, including short ones that do not name it.
                let unnamed = Case {
                    symmetric: true,
                    ..Case::simple(ALL_REDUCE, 1)
                };
                let before = group.symmetric_operations();
                perform(&unnamed, group, Some(&memory));
                assert_eq!(group.symmetric_operations() - before, 1);
            }
            let before = group.symmetric_operations();
            let outputs = [1, 1000, 30_000].map(|count| run_there(count, 8192).unwrap());
            assert_eq!(group.symmetric_operations() - before, 3);
            // Calls that do not name it, and other collectives, are not affected.
            perform(&Case::simple(Collective::AllGather, 100), group, None);
            outputs
        });
        for (place, count) in [1, 1000, 30_000].into_iter().enumerate() {
            let of_case: Vec<_> = outputs
                .iter()
                .map(|of_rank| of_rank[place].clone())
                .collect();
            check(&symmetric(count), &of_case);
        }
    }
    let refused = Ranks::run(TransportChoice::Tcp, 3, |group| {
        group
            .add_schedule("mine", in_place(3))
            .unwrap_err()
            .to_string()
    });
    assert!(
        refused[0].contains("needs symmetric memory and all ranks on one host"),
        "{refused:?}"
    );
}

/// An all-reduce in which every rank adds its share of all ranks' arrays, in the order of ranks.
fn in_place(ranks: u32) -> Vec<Schedule> {
    programs_for(MemoryClass::Symmetric, "slice-reduce", ALL_REDUCE, ranks)
}

#[test]
fn schedule_that_adds_in_rank_order_is_reproducible() {
    let policy = Policy {
        reproducible: true,
        ..bringing(texts(&[("mine", "two-shot"), ("round", "ring")], 3), &[])
    };
    let case = by("mine", 1000);
    let outputs = Ranks::run(setup(TransportChoice::Shm, policy, vec![]), 3, |group| {
        let output = run(group, &case).unwrap();
        assert_eq!(output, run(group, &by("direct", 1000)).unwrap());
        let refused = run(group, &by("round", 1000)).unwrap_err().to_string();
        assert!(refused.contains("that support it"), "{refused}");
        assert!(refused.contains(", mine"), "{refused}");
        let known = group.schedules().unwrap();
        assert_eq!(
            [known[0].reproducible, known[1].reproducible],
            [true, false]
        );
        output
    });
    check(&case, &outputs);
}
