//! Tests of claimable steps: bit-identical results for every executing rank.

mod ranks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ranks::arena::{Arena, perform};
use ranks::case::Case;
use ranks::judge::check;
use ranks::requested::{ALL_REDUCE, by, programs_for};
use ranks::{Ranks, Rng, fresh_seed};
use weft_algorithms::MemoryClass;
use weft_kernels::DType;
use weft_runtime::{Group, Op, Symmetric, Tiling, TransportChoice};
use weft_schedule::{Claim, Schedule, Step, parse};

/// Ranks 0 and 1 add, then rank 2's part is added. Rank 0 may help rank 1 with the first sum,
/// before which rank 1 waits for rank 2.
const LATE: &str = "
format 2
collective all-reduce
ranks 3
grid equal 1
scratch 1

rank 0
  copy scratch(0)[0] <- output[0]
  signal 1 #0
  wait 1 #0
  reduce 1.scratch(0)[0] <- 0.scratch(0)[0] + 1.scratch(0)[0] claim 0 by 1, 0
  wait 1 #1
  copy output[0] <- scratch(0)[0]
rank 1
  copy scratch(0)[0] <- output[0]
  signal 0 #0
  wait 0 #0
  wait 2 #0
  reduce 1.scratch(0)[0] <- 0.scratch(0)[0] + 1.scratch(0)[0] claim 0 by 1, 0
  reduce 0.scratch(0)[0], output[0], 2.scratch(0)[0] <- scratch(0)[0] + 2.scratch(0)[0] final
  signal 0 #1
  signal 2 #0
rank 2
  copy scratch(0)[0] <- output[0]
  signal 1 #0
  wait 1 #0
  copy output[0] <- scratch(0)[0]
";

/// The time after which a test has failed.
const DEADLINE: Duration = Duration::from_secs(60);

fn until(condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < DEADLINE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Memory for any of these cases.
fn memory_for(cases: &[Case], group: &Group) -> Symmetric {
    let needed = |case: &Case| Arena::needed(case, group.size());
    let bytes = cases.iter().map(needed).max().unwrap_or(1);
    group.symmetric(bytes as u64).unwrap()
}

#[test]
fn waiting_rank_executes_steps_of_a_late_rank() {
    for transport in [TransportChoice::Loopback, TransportChoice::Shm] {
        let case = by("late", 10_001);
        // Rank 2 calls after rank 0 has helped; until then rank 1 cannot reach its step.
        let helped = AtomicBool::new(false);
        let outputs = Ranks::run(transport, 3, |group| {
            group.add_schedule("late", parse(LATE).unwrap()).unwrap();
            let arena = Arena::new(&case, group, None);
            if group.rank() == 2 {
                until(|| helped.load(Ordering::SeqCst));
            }
            let work = arena.issue(&case, group, true).unwrap();
            if group.rank() == 0 {
                until(|| group.steps_helped() == 1);
                helped.store(true, Ordering::SeqCst);
            }
            work.wait(None, &mut || false).unwrap();
            assert_eq!(group.steps_helped(), u64::from(group.rank() == 0));
            arena.finish()
        });
        check(&case, &outputs);
    }
}

#[test]
fn step_without_a_word_is_executed_by_its_owner() {
    let case = by("late", 1001);
    let outputs = Ranks::run(TransportChoice::Shm, 3, |group| {
        let text = LATE.replace("claim 0", "claim 4000000000");
        group.add_schedule("late", parse(&text).unwrap()).unwrap();
        let output = perform(&case, group, None);
        assert_eq!(group.steps_helped(), 0);
        output
    });
    check(&case, &outputs);
}

/// Slice-reduce in which every rank may execute every step: its own first, others' where it would
/// wait.
fn shared_slices(ranks: u32) -> Vec<Schedule> {
    let plain = programs_for(MemoryClass::Symmetric, "slice-reduce", ALL_REDUCE, ranks);
    let claimable = |owner: u32| {
        let reduces = |step: &&Step| matches!(step, Step::Reduce { .. });
        let mut step = plain[owner as usize].steps.iter().find(reduces).cloned();
        let by = (owner..ranks).chain(0..owner).collect();
        if let Some(Step::Reduce { claim, .. }) = &mut step {
            *claim = Some(Claim { id: owner, by });
        }
        step.unwrap()
    };
    let program = |schedule: &Schedule| {
        let rank = schedule.rank;
        let mut steps = schedule.steps.clone();
        let own = steps.iter().position(|s| matches!(s, Step::Reduce { .. }));
        steps[own.unwrap()] = claimable(rank);
        let last_signal = steps.iter().rposition(|s| matches!(s, Step::Signal { .. }));
        let behind = last_signal.unwrap() + 1;
        let others = (1..ranks).map(|distance| claimable((rank + distance) % ranks));
        steps.splice(behind..behind, others);
        Schedule {
            steps,
            ..schedule.clone()
        }
    };
    plain.iter().map(program).collect()
}

/// Cases of all sizes, of one tile and of many.
fn random_cases(rng: &mut Rng) -> Vec<Case> {
    let some = |_| {
        let dtype = *rng.one_of(&[DType::F32, DType::F64, DType::F16]);
        Case {
            dtype,
            op: *rng.one_of(&[Op::Sum, Op::Average, Op::PremulSum(0.0)]),
            tiling: Tiling {
                tile_bytes: Some(*rng.one_of(&[500, 4000, 16 << 10])),
                tiles_in_flight: None,
            },
            in_place: rng.below(2) == 0,
            symmetric: true,
            seed: rng.next(),
            ..by("shared", rng.below(8000))
        }
    };
    (0..40).map(some).collect()
}

#[test]
fn results_do_not_depend_on_the_executing_rank() {
    let seed = fresh_seed();
    eprintln!("seed {seed}");
    let cases = random_cases(&mut Rng::new(seed));
    for ranks in [2, 3, 5] {
        let outputs = Ranks::run(TransportChoice::Shm, ranks, |group| {
            let schedules = shared_slices(ranks);
            group.add_schedule("shared", schedules).unwrap();
            let arena = memory_for(&cases, group);
            let run = |case: &Case| perform(case, group, Some(&arena));
            let both = |case: &Case| {
                let alone = Case {
                    algorithm: Some("slice-reduce".into()),
                    ..case.clone()
                };
                let output = run(case);
                assert!(output == run(&alone), "{case:?}");
                output
            };
            cases.iter().map(both).collect::<Vec<_>>()
        });
        for (place, case) in cases.iter().enumerate() {
            let of_case = outputs.iter().map(|of_rank| of_rank[place].clone());
            check(case, &of_case.collect::<Vec<_>>());
        }
    }
}
