//! The registry is consistent, and documented.

use std::collections::HashSet;

use weft_algorithms::{find, registry};

const DOCUMENTATION: &str = include_str!("../../../docs/algorithms.md");

#[test]
fn names_are_unique_and_found() {
    let mut names = HashSet::new();
    for algorithm in registry() {
        assert!(
            names.insert((algorithm.collective, algorithm.name)),
            "{algorithm:?}"
        );
        let found = find(algorithm.collective, algorithm.name).map(|found| found.summary);
        assert_eq!(found, Some(algorithm.summary));
    }
    assert!(find("all-reduce", "no such thing").is_none());
    assert!(find("broadcast", "pairwise").is_none());
}

#[test]
fn every_algorithm_is_documented() {
    let documented: HashSet<&str> = DOCUMENTATION
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    let registered: HashSet<String> = registry()
        .iter()
        .map(|algorithm| format!("{} `{}`", algorithm.collective, algorithm.name))
        .collect();
    assert_eq!(documented, registered.iter().map(String::as_str).collect());
}
