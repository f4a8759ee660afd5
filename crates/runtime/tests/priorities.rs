//! Tests of priorities: urgent operations after more operations than there are lanes.

mod ranks;

use std::sync::Barrier;

use ranks::Ranks;
use ranks::arena::Arena;
use ranks::case::Case;
use ranks::judge::check;
use ranks::requested::{ALL_REDUCE, by};
use weft_runtime::{TransportChoice, Waited, Work};

const RANKS: u32 = 3;
const OTHERS: usize = 10;

fn finish((arena, work): (Arena, Work)) -> Vec<u8> {
    let waited = work.wait(None, &mut || false).unwrap();
    assert_eq!(waited, Waited::Done);
    arena.finish()
}

/// Issues an operation with a priority after others with the priorities of `of_others`. Returns the
/// most of these that had ended before it on any rank.
fn ended_before(transport: TransportChoice, priority: i32, of_others: fn(usize) -> i32) -> usize {
    let large = |index| Case {
        priority: of_others(index),
        ..by("ring", 2 << 20)
    };
    let urgent = Case {
        priority,
        ..Case::simple(ALL_REDUCE, 11)
    };
    let others_have_issued = Barrier::new(RANKS as usize);
    let ranks = Ranks::run(transport, RANKS, |group| {
        let cases: Vec<Case> = (0..OTHERS).map(large).chain([urgent.clone()]).collect();
        let arenas: Vec<Arena> = (cases.iter().map(|case| Arena::new(case, group, None))).collect();
        // No operation progresses before rank 0 takes part.
        if group.rank() == 0 {
            others_have_issued.wait();
        }
        let issue = |(arena, case): (Arena, &Case)| {
            let work = arena.issue(case, group, true).unwrap();
            (arena, work)
        };
        let mut issued: Vec<(Arena, Work)> = arenas.into_iter().zip(&cases).map(issue).collect();
        if group.rank() != 0 {
            others_have_issued.wait();
        }
        let output = finish(issued.pop().unwrap());
        let ended = issued.iter().filter(|(_, work)| work.is_done()).count();
        let others: Vec<Vec<u8>> = issued.into_iter().map(finish).collect();
        (ended, output, others)
    });
    let outputs: Vec<Vec<u8>> = ranks.iter().map(|(_, output, _)| output.clone()).collect();
    check(&urgent, &outputs);
    for index in 0..OTHERS {
        let outputs: Vec<_> = ranks.iter().map(|rank| rank.2[index].clone()).collect();
        check(&large(index), &outputs);
    }
    ranks.iter().map(|(ended, ..)| *ended).max().unwrap()
}

#[test]
fn urgent_operation_overtakes_any_number_of_others() {
    for transport in [TransportChoice::Tcp, TransportChoice::Shm] {
        let ended = ended_before(transport, 5, |_| 0);
        assert!(ended <= 2, "{ended} over {transport:?}");
    }
}

#[test]
fn ordinary_operation_overtakes_low_priority_ones() {
    let ended = ended_before(TransportChoice::Tcp, 0, |_| -1);
    assert!(ended <= 2, "{ended}");
}

#[test]
fn priorities_beyond_the_levels_run() {
    ended_before(TransportChoice::Tcp, 100, |index| index as i32 - 4);
}
