//! The textbook: what every algorithm costs according to its source, as one table to read.
//!
//! That the verifier counts the same is checked where it counts: `verified.rs`.

mod family;

use std::fmt::Write;

use family::flat;
use weft_algorithms::{Memory, Parts, Terms, Textbook, registry};
use weft_schedule::Share;

const RANKS: [u32; 7] = [2, 3, 4, 7, 8, 16, 64];

#[test]
fn every_algorithm_without_parts_has_a_formula() {
    for algorithm in registry() {
        let flat = matches!(algorithm.requires.parts, Parts::None);
        assert_eq!(algorithm.textbook.is_some(), flat, "{algorithm:?}");
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

fn rows(textbook: fn(&Terms) -> Textbook, memory: Memory) -> String {
    let row = |ranks| {
        let Textbook {
            steps, sent, read, ..
        } = textbook(&Terms::new(ranks, memory));
        let [sent, all_sent] = [sent.most, sent.total].map(share);
        let [read, all_read] = [read.most, read.total].map(share);
        format!("  {ranks:>2} {steps:>5} {sent:>12} {all_sent:>12} {read:>12} {all_read:>12}\n")
    };
    RANKS.into_iter().map(row).collect()
}

#[test]
fn table() {
    let mut table = String::new();
    for algorithm in flat() {
        let textbook = algorithm.textbook.unwrap();
        let quote = textbook(&Terms::new(RANKS[0], Memory::Ordinary)).quote;
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
            [Memory::Ordinary, Memory::Symmetric].map(|memory| rows(textbook, memory));
        table += &ordinary;
        if symmetric != ordinary {
            writeln!(table, "  in symmetric memory\n{}", symmetric.trim_end()).unwrap();
        }
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}
