//! What a call runs by: names, options, profiles, defaults, and users' own schedules; the same on all ranks.

mod ranks;

use std::collections::BTreeMap;

use ranks::arena::{Arena, perform};
use ranks::case::Case;
use ranks::judge::check;
use ranks::{Ranks, Setup};
use weft_algorithms::{Memory, Request, Sizes, Topology, select};
use weft_kernels::DType;
use weft_runtime::{
    Error, Group, Policy, Profile, Row, SplitOptions, Tiling, TransportChoice, Waited,
};
use weft_schedule::{Collective, Schedule, parse};

const ALL_REDUCE: Collective = Collective::AllReduce;

fn setup(transport: TransportChoice, policy: Policy, profiles: Vec<Profile>) -> Setup {
    let mut setup = Setup::from(transport);
    setup.terms.policy = policy;
    setup.terms.profiles = profiles;
    setup
}

fn forced(pairs: &[(&str, &str)]) -> Policy {
    let pair = |(collective, name): &(&str, &str)| (collective.to_string(), name.to_string());
    Policy {
        algorithms: pairs.iter().map(pair).collect(),
        ..Policy::default()
    }
}

fn row(up_to_bytes: Option<u64>, algorithm: &str, tile_bytes: Option<u64>) -> Row {
    Row {
        up_to_bytes,
        algorithm: algorithm.into(),
        tiling: Tiling {
            tile_bytes,
            tiles_in_flight: None,
        },
    }
}

fn profile(ranks_per_host: &[u32], required: bool, rows: Vec<Row>) -> Profile {
    Profile {
        source: "a test's profile".into(),
        ranks_per_host: ranks_per_host.to_vec(),
        required,
        table: BTreeMap::from([("all-reduce".to_owned(), rows)]),
    }
}

fn name_of(group: &Group, bytes: u64) -> String {
    let explained = group.explain(ALL_REDUCE, bytes, DType::F32, false);
    explained.unwrap().algorithm
}

/// Who leaves earlier is missed.
fn until_all_have_met(group: &Group) {
    perform(&Case::simple(Collective::Barrier, 0), group, None);
}

fn run(group: &Group, case: &Case) -> Result<Vec<u8>, Error> {
    let arena = Arena::new(case, group, None);
    let work = arena.issue(case, group, false)?;
    assert_eq!(work.wait(None, &mut || false)?, Waited::Done);
    Ok(arena.finish())
}

fn by(algorithm: &str, count: usize) -> Case {
    Case {
        algorithm: Some(algorithm.into()),
        ..Case::simple(ALL_REDUCE, count)
    }
}

/// Every rank's program of one of weft's algorithms.
fn programs(name: &str, collective: Collective, ranks: u32) -> Vec<Schedule> {
    let selection = select(weft_algorithms::collective_name(collective), name).unwrap();
    let topology = Topology::flat(ranks);
    let program = |rank| {
        selection.build(&Request {
            collective,
            ranks,
            rank,
            memory: Memory::Ordinary,
            sizes: Sizes::Equal,
            topology: &topology,
            parts: &[],
        })
    };
    (0..ranks).map(program).collect()
}

#[test]
fn a_profile_of_rank_0_holds_for_all_ranks() {
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
        let explain = |bytes| group.explain(ALL_REDUCE, bytes, DType::F32, false).unwrap();
        (explain(1000), explain(1004), name_of(group, 1 << 20))
    });
    let (small, large, huge) = &plans[0];
    assert_eq!(small.algorithm, "two-shot");
    assert_eq!((large.algorithm.as_str(), huge.as_str()), ("ring", "ring"));
    assert_eq!(large.asked.tile_bytes, Some(4096));
    assert!(large.why[0].contains("what the profile says"), "{large:?}");
    assert!(plans.iter().all(|plan| *plan == plans[0]));
}

#[test]
fn a_profile_for_other_hosts_is_refused_or_left_out() {
    let profiles = |required| vec![profile(&[2, 1], required, vec![row(None, "ring", None)])];
    let optional = setup(TransportChoice::Shm, Policy::default(), profiles(false));
    let names = Ranks::run(optional, 3, |group| {
        until_all_have_met(group);
        name_of(group, 1 << 20)
    });
    assert_eq!(names, ["slice-reduce"; 3]);
    let required = setup(TransportChoice::Shm, Policy::default(), profiles(true));
    for error in ranks::refusals(&[required.clone(), required.clone(), required]) {
        let text = error.to_string();
        assert!(matches!(error, Error::Config(_)), "{text}");
        assert!(text.contains("[2, 1]") && text.contains("[3]"), "{text}");
    }
}

#[test]
fn what_is_forced_goes_before_the_profile_and_a_call_before_that() {
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

#[test]
fn ranks_that_are_told_differently_are_told_so() {
    let [ring, direct] = ["ring", "direct"].map(|name| {
        let policy = forced(&[("all-reduce", name)]);
        setup(TransportChoice::Loopback, policy, vec![])
    });
    let errors = ranks::refusals(&[ring.clone(), direct]);
    for (error, mine) in errors.iter().zip(["ring", "direct"]) {
        assert!(matches!(error, Error::Config(_)), "{error}");
        let told = format!("this rank all-reduce={mine}");
        assert!(error.to_string().contains(&told), "{error}");
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
fn wrong_options_are_refused_by_name() {
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
    refused(impossible, &["\"ring\"", "honoured by", "two-shot"]);
    let levels = |levels: &[&[u32]]| Policy {
        levels: levels.iter().map(|level| level.to_vec()).collect(),
        ..Policy::default()
    };
    refused(levels(&[&[0, 0, 0]]), &["3 ranks", "has 2"]);
    refused(levels(&[&[0, 0], &[0, 1]]), &["ranks 0 and 1"]);
}

#[test]
fn tiles_are_as_small_and_as_few_as_asked() {
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
fn a_schedule_of_ones_own_runs_like_any_other() {
    for transport in [TransportChoice::Shm, TransportChoice::Tcp] {
        let case = by("mine", 1000);
        let outputs = Ranks::run(transport, 3, |group| {
            let add = |name: &str, of: &str| group.add_schedule(name, programs(of, ALL_REDUCE, 3));
            add("mine", "ring").unwrap();
            for taken in ["mine", "ring"] {
                let error = add(taken, "ring").unwrap_err().to_string();
                assert!(error.contains("is taken"), "{error}");
            }
            let rooted = Collective::Broadcast { root: 1 };
            let mapped = group.add_schedule("read", programs("mapped", rooted, 3));
            let unknown = run(group, &by("yours", 10)).unwrap_err().to_string();
            assert!(unknown.contains("of your own: mine"), "{unknown}");
            (run(group, &case).unwrap(), mapped)
        });
        let (outputs, mapped): (Vec<_>, Vec<_>) = outputs.into_iter().unzip();
        check(&case, &outputs);
        // Over TCP nobody reads another rank's memory.
        let refused = mapped.iter().filter(|mapped| mapped.is_err()).count();
        let expected = if transport == TransportChoice::Tcp {
            3
        } else {
            0
        };
        assert_eq!(refused, expected, "{mapped:?}");
    }
}

#[test]
fn a_wrong_schedule_is_refused_with_the_verifiers_message() {
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
fn a_rooted_schedule_is_for_its_root_only() {
    let text = "collective broadcast from 1\nranks 2\ngrid equal 1\nlanding 1\n\n\
                rank 0\n  wait 1 #0\n  copy output[0] <- landing(1:0)[0]\n\
                rank 1\n  copy 0.landing(1:0)[0] <- output[0]\n  signal 0 #0\n";
    let schedules = parse(text).unwrap();
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
        assert!(text.contains("by mine, plan"), "{text}");
        assert!(text.contains("which this rank does not know"), "{text}");
    }
}

#[test]
fn different_algorithms_are_a_desync_that_names_both() {
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

#[test]
fn what_is_not_chosen_is_explained() {
    let hosts = Setup::on_hosts(&[0, 0, 1, 1]);
    let why = Ranks::run(hosts, 4, |group| {
        until_all_have_met(group);
        let explained = group.explain(ALL_REDUCE, 1 << 24, DType::F32, false);
        explained.unwrap().why
    });
    assert_eq!(
        why[0][0],
        "multi-rail(slice-reduce, ring): chosen, the built-in default for messages without a limit"
    );
    assert!(why[0].contains(&"slice-reduce: refused: needs all ranks on one host".to_owned()));
    assert!(why.iter().all(|reasons| *reasons == why[0]));
}
