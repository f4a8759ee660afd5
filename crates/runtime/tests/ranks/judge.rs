//! Checks of the results of all ranks in a case.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use weft_runtime::Group;
use weft_schedule::Collective;

use super::case::Case;
use super::{Ranks, Setup, numbers};

/// Runs a group, and checks the results meanwhile. `body` passes on its outputs, one case after the
/// other.
pub(crate) fn judged(
    setup: &Setup,
    ranks: u32,
    cases: &[Case],
    body: impl Fn(&Group, &dyn Fn(Vec<u8>)) + Send + Sync,
) {
    thread::scope(|scope| {
        let channels = (0..ranks).map(|_| sync_channel::<Vec<u8>>(16));
        let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
        let judge = scope.spawn(move || {
            for (number, case) in cases.iter().enumerate() {
                let outputs: Result<Vec<_>, _> = receivers.iter().map(Receiver::recv).collect();
                let Ok(outputs) = outputs else { return };
                named(&format!("case {number} of {ranks} ranks: {case:?}"), || {
                    check(case, &outputs);
                });
            }
        });
        Ranks::run(setup.clone(), ranks, |group| {
            let sender = &senders[group.rank() as usize];
            body(group, &|output| {
                sender.send(output).expect("an earlier result is right");
            });
        });
        drop(senders);
        judge.join().unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Prints a description of the action if it panics.
pub(crate) fn named<T>(description: &str, action: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        eprintln!("failed: {description}");
        resume_unwind(panic)
    })
}

/// Panics unless the outputs of all ranks are correct.
pub(crate) fn check(case: &Case, outputs: &[Vec<u8>]) {
    let ranks = outputs.len();
    let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| case.input(rank, ranks)).collect();
    let size = case.dtype.size();
    match case.collective {
        Collective::AllReduce => {
            numbers::check(case.dtype, case.op, &inputs, &outputs[0]);
            assert!(
                outputs.windows(2).all(|pair| pair[0] == pair[1]),
                "ranks differ"
            );
        }
        Collective::Reduce { root } => {
            numbers::check(case.dtype, case.op, &inputs, &outputs[root as usize]);
        }
        Collective::ReduceScatter => {
            numbers::check(case.dtype, case.op, &inputs, &outputs.concat());
        }
        Collective::Broadcast { root } => {
            outputs
                .iter()
                .for_each(|output| same(output, &inputs[root as usize]));
        }
        Collective::AllGather => {
            let all = inputs.concat();
            outputs.iter().for_each(|output| same(output, &all));
        }
        Collective::Gather { root } => same(&outputs[root as usize], &inputs.concat()),
        Collective::Scatter { root } => same(&outputs.concat(), &inputs[root as usize]),
        Collective::AllToAll => {
            for (to, output) in outputs.iter().enumerate() {
                let sent = inputs.iter().enumerate().map(|(from, input)| {
                    let range = case.sent(from, to);
                    &input[range.start * size..range.end * size]
                });
                same(output, &sent.collect::<Vec<_>>().concat());
            }
        }
        Collective::Barrier => {}
    }
}

fn same(found: &[u8], expected: &[u8]) {
    if found == expected {
        return;
    }
    assert_eq!(found.len(), expected.len());
    let wrong = (0..found.len()).find(|i| found[*i] != expected[*i]);
    assert!(
        wrong.is_none(),
        "byte {wrong:?} of {} is wrong",
        found.len()
    );
}
