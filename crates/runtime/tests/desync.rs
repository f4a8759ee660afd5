//! Tests of desync errors: the differences that they name, and rank numbers that are equal on all
//! ranks.

mod ranks;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use ranks::Ranks;
use weft_kernels::DType;
use weft_runtime::{Call, Counts, Error, Group, Op, SplitOptions, TransportChoice, Waited};
use weft_schedule::{Collective, WireFormat};

const TRANSPORTS: [TransportChoice; 2] = [TransportChoice::Loopback, TransportChoice::Tcp];

fn run(group: &Group, collective: Collective, timeout: Duration) -> Result<(), Error> {
    run_in(group, collective, None, timeout)
}

fn run_in(
    group: &Group,
    collective: Collective,
    wire: Option<WireFormat>,
    timeout: Duration,
) -> Result<(), Error> {
    let mut buffer = vec![1.0_f32; 100];
    let call = Call {
        collective,
        dtype: DType::F32,
        op: Op::Sum,
        input: buffer.as_ptr().cast(),
        output: buffer.as_mut_ptr().cast(),
        counts: Counts::Equal(100),
        priority: 0,
        timeout: Some(timeout),
        algorithm: None,
        tiling: Default::default(),
        wire,
    };
    // SAFETY: the buffer lives until the wait is over.
    let work = unsafe { group.issue(call, false) }?;
    assert_eq!(work.wait(None, &mut || false)?, Waited::Done);
    Ok(())
}

fn texts(errors: &[Error], is: fn(&Error) -> bool) -> Vec<String> {
    assert!(errors.iter().all(is), "{errors:?}");
    errors.iter().map(Error::to_string).collect()
}

fn is_desync(error: &Error) -> bool {
    matches!(error, Error::Desync { .. })
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn every_ranks_error_names_different_calls() {
    for transport in TRANSPORTS {
        let root = Collective::Broadcast { root: 1 };
        let errors = Ranks::run(transport, 4, |group| {
            let collective = match group.rank() {
                1 => root,
                _ => Collective::AllReduce,
            };
            run(group, collective, LONG)
                .and_then(|()| run(group, Collective::AllReduce, LONG))
                .unwrap_err()
        });
        for text in texts(&errors, is_desync) {
            assert!(text.contains("rank 1 called broadcast("), "{text}");
            let other = |rank| text.contains(&format!("rank {rank} called all-reduce("));
            assert!([0, 2, 3].into_iter().any(other), "{text}");
            assert!(text.contains("as operation 0 of group test"), "{text}");
            assert!(
                !text.contains("this rank") && !text.contains("plan"),
                "{text}"
            );
        }
    }
}

#[test]
fn different_wire_formats_are_a_desync() {
    for transport in TRANSPORTS {
        let errors = Ranks::run(transport, 3, |group| {
            let wire = (group.rank() == 1).then_some(WireFormat::Fp8E4m3);
            run_in(group, Collective::AllReduce, wire, LONG)
                .and_then(|()| run(group, Collective::Barrier, LONG))
                .unwrap_err()
        });
        for text in texts(&errors, is_desync) {
            let call = "rank 1 called all-reduce(100 x float32, sum, wire fp8_e4m3)";
            assert!(text.contains(call), "{text}");
        }
    }
}

#[test]
fn desync_names_the_earlier_call_that_differed() {
    for transport in TRANSPORTS {
        let errors = Ranks::run(transport, 2, |group| {
            // Each rank is its own root and does not wait.
            let own = Collective::Broadcast { root: group.rank() };
            run(group, Collective::Barrier, LONG).unwrap();
            run(group, own, LONG)
                .and_then(|()| run(group, Collective::AllReduce, LONG))
                .unwrap_err()
        });
        for text in texts(&errors, is_desync) {
            for rank in [0, 1] {
                let call = format!("rank {rank} called broadcast(100 x float32, root {rank})");
                assert!(text.contains(&call), "{text}");
            }
            assert!(text.contains("as operation 1 of"), "{text}");
        }
    }
}

#[test]
fn timeout_names_collective_group_and_ranks() {
    for transport in TRANSPORTS {
        let found = Ranks::run(transport, 3, |group| {
            let pair = group.split(&[1, 2], "pair", SplitOptions::default());
            let pair = pair.unwrap()?;
            run(&pair, Collective::Barrier, LONG).unwrap();
            if group.rank() == 2 {
                while pair.broken().is_none() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                return pair.broken();
            }
            let soon = Duration::from_millis(300);
            run(&pair, Collective::AllReduce, soon).err()
        });
        let errors: Vec<Error> = found.into_iter().flatten().collect();
        let texts = texts(&errors, |error| matches!(error, Error::Timeout { .. }));
        assert_eq!(texts.len(), 2);
        for text in &texts {
            assert!(text.contains("all-reduce(100 x float32, sum)"), "{text}");
            assert!(
                text.contains("in group pair (ranks 1, 2 of test)"),
                "{text}"
            );
            assert!(text.contains("waiting for rank 2 on "), "{text}");
            assert!(!text.contains("signal") && !text.contains("plan"), "{text}");
        }
        assert!(texts[1].contains("rank 1: all-reduce("), "{}", texts[1]);
    }
}

#[test]
fn lost_rank_is_named_by_both_its_numbers() {
    let found = Ranks::run(TransportChoice::Loopback, 3, |group| {
        let pair = group.split(&[1, 2], "pair", SplitOptions::default());
        let pair = pair.unwrap()?;
        run(&pair, Collective::Barrier, LONG).unwrap();
        match pair.rank() {
            0 => run(&pair, Collective::AllReduce, LONG).err(),
            _ => None,
        }
    });
    let error = found[1].clone().unwrap();
    assert!(
        matches!(error, Error::PeerLost { rank: Some(1), .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("it is rank 2 of test"), "{text}");
}

/// The errors of the ranks, where each calls split with its own list of members.
fn disagree(transport: TransportChoice, lists: &[&[u32]]) -> Vec<Option<Error>> {
    let (since, reported) = (Instant::now(), Barrier::new(lists.len()));
    let errors = Ranks::run(transport, lists.len() as u32, |group| {
        let list = lists[group.rank() as usize];
        let error = match group.split(list, "pairs", SplitOptions::default()) {
            Ok(Some(child)) => run(&child, Collective::AllReduce, LONG).err(),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        reported.wait();
        error
    });
    assert!(since.elapsed() < LONG / 2, "{:?}", since.elapsed());
    errors
}

#[test]
fn different_member_lists_fail_on_all_members() {
    for transport in TRANSPORTS {
        let cases: [&[&[u32]]; 4] = [
            &[&[0, 1, 2], &[0, 1], &[0, 1, 2]],
            &[&[0, 1], &[1, 0]],
            &[&[0, 1], &[1, 2], &[2, 0]],
            &[&[0, 1], &[0, 2], &[0, 2]],
        ];
        for lists in cases {
            let errors = disagree(transport, lists);
            for (rank, error) in errors.into_iter().enumerate() {
                let Some(error) = error else {
                    assert!(
                        !lists[rank].contains(&(rank as u32)),
                        "rank {rank} of {lists:?}"
                    );
                    continue;
                };
                let text = error.to_string();
                assert!(matches!(error, Error::Config(_)), "{error:?}");
                assert!(
                    text.contains("group pairs with different members"),
                    "{text}"
                );
                let named = lists.iter().enumerate().filter(|(rank, list)| {
                    let list = format!("{list:?}").replace(['[', ']'], "");
                    let list = list.replace("0, 1, 2", "0-2");
                    text.contains(&format!("rank {rank} listed ranks {list}"))
                });
                assert_eq!(named.count(), 2, "{text}");
            }
        }
    }
}

#[test]
fn different_groups_with_one_name_work() {
    Ranks::run(TransportChoice::Loopback, 4, |group| {
        let half: &[u32] = match group.rank() {
            0 | 2 => &[0, 2],
            _ => &[1, 3],
        };
        for list in [half, &[0, 1, 2], &[3, 1], half] {
            let child = group.split(list, "part", SplitOptions::default()).unwrap();
            if let Some(child) = child {
                run(&child, Collective::AllReduce, LONG).unwrap();
            }
        }
        run(group, Collective::Barrier, LONG).unwrap();
    });
}
