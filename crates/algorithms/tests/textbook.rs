//! The table of the textbook: the cost of every algorithm according to its source.
//!
//! `verified.rs`, and `composed.rs` for compositions, check that the verifier counts the same.

mod family;

use std::fmt::Write;

use family::{collectives, flat, request};
use weft_algorithms::{Algorithm, Costs, MemoryClass, Parts, Textbook, Topology, registry, select};
use weft_schedule::Share;

const RANKS: [u32; 7] = [2, 3, 4, 7, 8, 16, 64];

#[test]
fn every_algorithm_without_units_has_a_formula() {
    for algorithm in registry() {
        let units = matches!(
            algorithm.requires.parts,
            Parts::Levels { .. } | Parts::Units
        );
        let described = matches!(algorithm.costs, Costs::Parts(..) | Costs::OfUnits(..));
        assert_eq!(described, units, "{algorithm:?}");
    }
}

/// A share of the message, or nothing.
fn share(share: Share) -> String {
    match (share.numerator, share.denominator) {
        (0, _) => "0".to_owned(),
        (1, 1) => "n".to_owned(),
        (times, 1) => format!("{times} n"),
        (1, of) => format!("n/{of}"),
        (times, of) => format!("{times} n/{of}"),
    }
}

fn row(what: &str, textbook: &Textbook) -> String {
    let Textbook { steps, sent, read } = textbook;
    let [sent, all_sent] = [sent.most, sent.total].map(share);
    let [read, all_read] = [read.most, read.total].map(share);
    format!("  {what:>2} {steps:>5} {sent:>12} {all_sent:>12} {read:>12} {all_read:>12}\n")
}

fn rows(algorithm: &Algorithm, memory: MemoryClass) -> String {
    let row = |ranks: u32| {
        let topology = Topology::flat(ranks);
        let collective = collectives(algorithm.collective, ranks)[0];
        let textbook = algorithm.textbook(&request(collective, memory, &topology));
        row(&ranks.to_string(), &textbook.unwrap())
    };
    RANKS.into_iter().map(row).collect()
}

#[test]
fn table() {
    let mut table = String::new();
    for algorithm in flat() {
        let quote = algorithm.about.quote;
        writeln!(
            table,
            "{} {}: {quote}",
            algorithm.collective, algorithm.name
        )
        .unwrap();
        writeln!(
            table,
            "   p steps    most sent     all sent    most read     all read"
        )
        .unwrap();
        let [ordinary, symmetric] =
            [MemoryClass::Ordinary, MemoryClass::Symmetric].map(|memory| rows(algorithm, memory));
        table += &ordinary;
        if symmetric != ordinary {
            writeln!(table, "  in symmetric memory\n{}", symmetric.trim_end()).unwrap();
        }
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}

/// Ranks of each host.
const HOSTS: [&[u32]; 5] = [&[2, 2], &[4, 4, 4], &[8; 4], &[4; 16], &[3, 2, 2]];

/// In ordinary memory, by hosts. Where these differ in size, steps and the most bytes sent are
/// bounds.
#[test]
fn table_of_composed_algorithms() {
    let choices = [
        ("all-reduce", "multi-rail(direct, ring)"),
        ("all-reduce", "multi-rail(ring, ring)"),
        ("all-reduce", "multi-rail(slice-reduce, halving-doubling)"),
        ("all-reduce", "leaders(binomial, ring)"),
        ("all-reduce", "leaders(double-tree, double-tree)"),
        ("all-reduce", "torus"),
        ("all-reduce", "parameter-server"),
        ("reduce", "leaders(binomial, binomial)"),
        ("broadcast", "leaders(binomial, scatter-all-gather)"),
    ];
    let mut table = String::new();
    for (name, choice) in choices {
        let selection = select(name, choice).unwrap();
        let textbook = |hosts: &[u32]| {
            let of_host = (0..).zip(hosts);
            let host_of_rank = of_host.flat_map(|(host, size)| vec![host; *size as usize]);
            let topology = Topology::hosts(&host_of_rank.collect::<Vec<u32>>());
            let collective = collectives(name, 1)[0];
            let asked = request(collective, MemoryClass::Ordinary, &topology);
            selection.textbook(&asked).unwrap()
        };
        let quote = selection.algorithm.about.quote;
        writeln!(table, "{name} {choice}: {quote}").unwrap();
        writeln!(
            table,
            "      hosts steps    most sent     all sent    most read     all read"
        )
        .unwrap();
        for hosts in HOSTS {
            let even = hosts.iter().all(|ranks| *ranks == hosts[0]);
            let what = match even {
                true => format!("{} of {}", hosts.len(), hosts[0]),
                false => hosts
                    .iter()
                    .map(u32::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            table += &row(&format!("{what:>9}"), &textbook(hosts));
        }
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}
