//! Tests of domains inside hosts: the algorithms that they enable, and the choices that they
//! change.

mod ranks;

use ranks::requested::{ALL_REDUCE, by, forced, name_of, profile, row, run, until_all_have_met};
use ranks::{Ranks, Setup};
use weft_kernels::DType;
use weft_runtime::{Group, MemoryClass, Profile, SplitOptions, TransportChoice};

#[test]
fn domains_enable_composed_algorithms_on_one_host() {
    let name = "multi-rail(slice-reduce, slice-reduce)";
    let plain = Setup::from(TransportChoice::Shm);
    let setup = plain.clone().with_domains(&[&[0, 0, 1, 1, 1]]);
    let describe = |group: &Group| {
        let explained = group.explain(ALL_REDUCE, 1 << 20, DType::F32, MemoryClass::Ordinary);
        let output = run(group, &by(name, 5000)).unwrap();
        let some = group.split(&[0, 2, 3], "some", SplitOptions::default());
        let of_some = some.unwrap().map(|group| group.domains().unwrap());
        until_all_have_met(group);
        let domains = group.domains().unwrap();
        (domains, explained.unwrap(), of_some, output)
    };
    let results = Ranks::run(setup, 5, describe);
    for (rank, (domains, explained, of_some, output)) in results.iter().enumerate() {
        assert_eq!(*domains, [[0, 0, 2, 2, 2]]);
        assert_eq!(explained.algorithm, "slice-reduce");
        let possible = format!("{name}: possible");
        assert!(
            explained.why.iter().any(|why| why.starts_with(&possible)),
            "{explained:?}"
        );
        let expected = [0, 2, 3].contains(&rank).then(|| vec![vec![0, 1, 1]]);
        assert_eq!(*of_some, expected);
        assert_eq!(*output, results[0].3);
    }
    for (domains, explained, of_some, _) in Ranks::run(plain, 5, describe) {
        assert!(domains.is_empty() && of_some.is_none_or(|domains| domains.is_empty()));
        assert!(!explained.why.iter().any(|why| why.starts_with(name)));
    }
}

#[test]
fn plan_depends_on_domains_of_its_components() {
    let setup = Setup::from(TransportChoice::Shm);
    let hash = |domains: &[u32], name: &str| {
        let mut setup = setup.clone().with_domains(&[domains]);
        setup.terms.policy.algorithms = forced(&[("all-reduce", name)]).algorithms;
        let explain = |group: &Group| {
            let explained = group.explain(ALL_REDUCE, 1 << 20, DType::F32, MemoryClass::Ordinary);
            explained.unwrap().hash
        };
        Ranks::run(setup, 4, explain)[0]
    };
    let (pairs, uneven) = ([0, 0, 1, 1], [0, 0, 0, 1]);
    assert_eq!(hash(&pairs, "ring"), hash(&uneven, "ring"));
    let composed = "multi-rail(ring, ring)";
    assert_eq!(hash(&pairs, composed), hash(&[5, 5, 9, 9], composed));
    assert_ne!(hash(&pairs, composed), hash(&uneven, composed));
}

#[test]
fn profile_for_domains_precedes_general_profile() {
    let pairs = Profile {
        domains: vec![vec![0, 0, 2, 2]],
        ..profile(&[4], false, vec![row(None, "multi-rail(ring, ring)", None)])
    };
    let any = profile(&[4], false, vec![row(None, "two-shot", None)]);
    let chosen = |domains: &[&[u32]]| {
        let mut setup = Setup::from(TransportChoice::Shm).with_domains(domains);
        setup.terms.profiles = vec![any.clone(), pairs.clone()];
        let names = Ranks::run(setup, 4, |group| name_of(group, 1 << 20));
        assert!(names.iter().all(|name| *name == names[0]));
        names[0].clone()
    };
    assert_eq!(chosen(&[&[0, 0, 1, 1]]), "multi-rail(ring, ring)");
    assert_eq!(chosen(&[&[0, 0, 0, 1]]), "two-shot");
    assert_eq!(chosen(&[]), "two-shot");
    let mut setup = Setup::from(TransportChoice::Shm);
    setup.terms.profiles = vec![Profile {
        required: true,
        ..pairs.clone()
    }];
    for error in ranks::refusals(&vec![setup; 4]) {
        assert!(error.to_string().contains("[[0, 0, 2, 2]]"), "{error}");
    }
}
