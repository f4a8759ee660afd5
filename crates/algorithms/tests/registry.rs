//! Tests of the registry: consistency and documentation.

use std::collections::HashSet;

use weft_algorithms::{MemoryClass, find, registry};

const DOCUMENTATION: &str = include_str!("../../../docs/explanation/algorithms.md");

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
fn every_algorithm_has_texts_and_formulas() {
    for algorithm in registry() {
        let about = algorithm.about;
        assert!(
            !about.how.is_empty() && !about.wins.is_empty(),
            "{algorithm:?}"
        );
        assert!(!algorithm.formulas().is_empty(), "{algorithm:?}");
    }
}

/// The page is generated: `make docs`. That all of it is current is checked where it is generated.
#[test]
fn every_algorithm_is_documented() {
    let documented: HashSet<&str> = DOCUMENTATION
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    let registered: HashSet<String> = registry()
        .map(|algorithm| format!("{} `{}`", algorithm.collective, algorithm.name))
        .collect();
    assert_eq!(documented, registered.iter().map(String::as_str).collect());
}

/// The page's table agrees with every algorithm's formulas.
#[test]
fn the_page_has_the_formulas() {
    for algorithm in registry() {
        let link = format!("#{}-{})", algorithm.collective, algorithm.name);
        let lines = DOCUMENTATION.lines();
        let mut rows = lines.skip_while(|line| !(line.starts_with('|') && line.contains(&link)));
        for formula in algorithm.formulas() {
            let memory = match formula.memory {
                None => "",
                Some(MemoryClass::Ordinary) => "ordinary",
                Some(MemoryClass::Symmetric) => "symmetric",
            };
            let cells = [memory, &formula.steps, &formula.sent, &formula.read].join(" | ");
            let row = rows.next().unwrap_or_default();
            assert!(row.ends_with(&format!("| {cells} |")), "{row}: {cells}");
        }
    }
}
