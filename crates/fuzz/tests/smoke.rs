//! Runs of every fuzz target on its corpus, and on many inputs near it.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use weft_fuzz::TARGETS;

/// The recorded inputs of a target.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let inputs: Vec<_> = entries
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!inputs.is_empty(), "{} has no inputs", folder.display());
    inputs
}

/// A change of an input.
#[derive(Clone, Debug)]
enum Change {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = prop_oneof![
        Just(0),
        Just(1),
        Just(0x7f),
        Just(0x80),
        Just(0xff),
        any::<u8>()
    ];
    prop_oneof![
        4 => (any::<prop::sample::Index>(), byte).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => any::<prop::sample::Index>().prop_map(Change::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    if bytes.is_empty() {
        return;
    }
    match change {
        Change::Set(at, byte) => {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        Change::Insert(at, new) => {
            let at = at.index(bytes.len());
            bytes.splice(at..at, new.iter().copied());
        }
        Change::Cut(at) => bytes.truncate(at.index(bytes.len())),
    }
}

#[test]
fn corpus_inputs_pass() {
    for (name, target) in TARGETS {
        corpus(name).iter().for_each(|input| target(input));
    }
}

#[test]
fn inputs_near_the_corpus_pass() {
    for (name, target) in TARGETS {
        let inputs = prop::sample::select(corpus(name));
        let mut runner = prop::test_runner::TestRunner::new(ProptestConfig::with_cases(10_000));
        let changed = (inputs, prop::collection::vec(change(), 0..6));
        let outcome = runner.run(&changed, |(mut input, changes)| {
            changes.iter().for_each(|change| apply(&mut input, change));
            target(&input);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
