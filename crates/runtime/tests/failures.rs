//! Tests of failures: precise errors on every rank, and no rank that waits forever.

mod ranks;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ranks::{Ranks, Setup};
use weft_kernels::DType;
use weft_runtime::{
    Call, Counts, Encryption, Error, Group, Op, SplitOptions, TransportChoice, Waited,
};
use weft_schedule::Collective;
use weft_transport_testing::strict;

const TRANSPORTS: [TransportChoice; 4] = [
    TransportChoice::Loopback,
    TransportChoice::Shm,
    TransportChoice::Tcp,
    TransportChoice::Custom(strict),
];

fn call(collective: Collective, buffer: &mut [f32], count: u64) -> Call {
    Call {
        collective,
        dtype: DType::F32,
        op: Op::Sum,
        input: buffer.as_ptr().cast(),
        output: buffer.as_mut_ptr().cast(),
        counts: Counts::Equal(count),
        priority: 0,
        timeout: None,
        algorithm: None,
        tiling: Default::default(),
        wire: None,
    }
}

fn run(group: &Group, call: Call) -> Result<(), Error> {
    // SAFETY: the tests keep their buffers until the wait has ended.
    let work = unsafe { group.issue(call, false) }?;
    assert_eq!(work.wait(None, &mut || false)?, Waited::Done);
    Ok(())
}

fn is_desync(error: &Error) -> bool {
    matches!(error, Error::Desync { .. })
}

#[test]
fn different_counts_are_a_desync_with_both_calls() {
    for transport in TRANSPORTS {
        let errors = Ranks::run(transport, 3, |group| {
            let mut buffer = vec![1.0; 200];
            let count = if group.rank() == 1 { 101 } else { 100 };
            run(group, call(Collective::AllReduce, &mut buffer, count)).unwrap_err()
        });
        assert!(errors.iter().all(is_desync), "{errors:?}");
        let text = errors[0].to_string();
        assert!(
            text.contains("100 x float32") && text.contains("101 x float32"),
            "{text}"
        );
    }
}

#[test]
fn different_collectives_without_signals_are_a_desync() {
    for transport in TRANSPORTS {
        let errors = Ranks::run(transport, 3, |group| {
            let mut buffer = vec![1.0; 100];
            // The root of a broadcast does not wait; its mistake must still be detected.
            let collective = match group.rank() {
                0 => Collective::Broadcast { root: 0 },
                _ => Collective::AllReduce,
            };
            run(group, call(collective, &mut buffer, 100))
                .and_then(|()| run(group, call(Collective::AllReduce, &mut buffer, 100)))
                .unwrap_err()
        });
        assert!(errors.iter().all(is_desync), "{errors:?}");
    }
}

#[test]
fn difference_in_ended_operation_is_detected_by_the_next() {
    let errors = Ranks::run(TransportChoice::Loopback, 2, |group| {
        let mut buffer = vec![1.0; 4];
        let sent = if group.rank() == 0 { 4 } else { 3 };
        let first = run(
            group,
            call(Collective::Broadcast { root: 0 }, &mut buffer, sent),
        );
        first
            .and_then(|()| run(group, call(Collective::Barrier, &mut [], 0)))
            .unwrap_err()
    });
    assert!(errors.iter().all(is_desync), "{errors:?}");
}

/// Broadcasts, in which ranks receive from few others, except for an exchange once in a few calls.
fn broadcasts(
    group: &Group,
    calls: usize,
    timeout: Duration,
    root: impl Fn(usize) -> u32,
) -> Result<(), Error> {
    let mut buffer = vec![1.0; 100];
    (0..calls).try_for_each(|index| {
        let collective = Collective::Broadcast { root: root(index) };
        run(
            group,
            Call {
                timeout: Some(timeout),
                ..call(collective, &mut buffer, 100)
            },
        )
    })
}

#[test]
fn different_root_among_many_broadcasts_is_a_desync() {
    for transport in TRANSPORTS {
        let errors = Ranks::run(transport, 3, |group| {
            let other = group.rank() == 1;
            // Many more calls than a root's puts may be ahead of its receivers.
            let root = |index| u32::from(other && index == 20);
            broadcasts(group, 200, Duration::from_secs(20), root).unwrap_err()
        });
        assert!(errors.iter().all(is_desync), "{errors:?}");
        let text = errors[0].to_string();
        assert!(text.contains("broadcast("), "{text}");
    }
}

#[test]
fn root_detects_that_no_rank_receives() {
    let errors = Ranks::run(TransportChoice::Shm, 3, |group| {
        let calls = if group.rank() == 2 { 20 } else { 50 };
        let result = broadcasts(group, calls, Duration::from_millis(500), |_| 0);
        let since = Instant::now();
        while group.broken().is_none() && since.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        result.err()
    });
    assert!(errors[2].is_none() && errors[0].is_some(), "{errors:?}");
    for error in errors.into_iter().flatten() {
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
    }
}

#[test]
fn missing_rank_is_named_at_the_deadline() {
    for transport in TRANSPORTS {
        let errors = Ranks::run(transport, 3, |group| {
            let mut buffer = vec![1.0; 100];
            if group.rank() == 2 {
                // Does not take part until the others have timed out.
                let since = Instant::now();
                while group.broken().is_none() && since.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                assert!(group.broken().is_some(), "an idle rank was not notified");
                return None;
            }
            let mut c = call(Collective::AllReduce, &mut buffer, 100);
            c.timeout = Some(Duration::from_millis(300));
            Some(run(group, c).unwrap_err())
        });
        for error in errors.into_iter().flatten() {
            let text = error.to_string();
            assert!(matches!(error, Error::Timeout { .. }), "{text}");
            assert!(
                text.contains("all-reduce") && text.contains("rank "),
                "{text}"
            );
        }
    }
}

#[test]
fn abort_ends_pending_calls_on_every_rank_immediately() {
    for transport in TRANSPORTS {
        let since = Instant::now();
        let errors = Ranks::run(transport, 3, |group| {
            let mut buffer = vec![1.0; 100];
            if group.rank() == 0 {
                std::thread::sleep(Duration::from_millis(100));
                group.abort("the test says so");
                return group.broken().unwrap();
            }
            run(group, call(Collective::AllReduce, &mut buffer, 100)).unwrap_err()
        });
        assert!(
            errors.iter().all(|e| matches!(e, Error::Aborted { .. })),
            "{errors:?}"
        );
        assert!(
            errors[1].to_string().contains("the test says so"),
            "{}",
            errors[1]
        );
        assert!(since.elapsed() < Duration::from_secs(10));
    }
}

/// A redirected link must not write to the output after the call has returned. The message of the
/// other group arrives after all bytes of the broken one.
#[test]
fn failed_call_writes_nothing_after_its_return() {
    const ELEMENTS: usize = 4 << 20;
    // The scheduler determines how much has arrived: in some rounds, a part of the payload.
    for round in 0..16 {
        let aborting_rank = round % 2;
        let setup = Setup {
            tcp_connections: (round % 3 == 0).then_some(3),
            encryption: match round % 4 {
                3 => Encryption::Best,
                _ => Encryption::Off,
            },
            ..TransportChoice::Tcp.into()
        };
        let begin = Barrier::new(2);
        Ranks::run(setup, 2, |group| {
            let other = group.split(&[0, 1], "other", SplitOptions::default());
            let other = other.unwrap().unwrap();
            run(group, call(Collective::Barrier, &mut [], 0)).unwrap();
            let memory: Vec<AtomicU32> = (0..ELEMENTS).map(|_| group.rank().into()).collect();
            let broadcast = Call {
                dtype: DType::I32,
                input: memory.as_ptr().cast(),
                output: memory.as_ptr().cast_mut().cast(),
                ..call(Collective::Broadcast { root: 0 }, &mut [], ELEMENTS as u64)
            };
            begin.wait();
            // The other rank may have aborted already.
            // SAFETY: the memory is kept until the wait has ended.
            if let Ok(work) = unsafe { group.issue(broadcast, true) } {
                if group.rank() == aborting_rank {
                    let middle = Duration::from_micros(300 * u64::from(round + 1));
                    let _ = work.wait(Some(middle), &mut || false);
                    group.abort("in the middle of it");
                }
                let _ = work.wait(None, &mut || false);
            }
            memory
                .iter()
                .for_each(|word| word.store(3, Ordering::Relaxed));
            run(&other, call(Collective::Barrier, &mut [], 0)).unwrap();
            let written = memory
                .iter()
                .position(|word| word.load(Ordering::Relaxed) != 3);
            assert_eq!(written, None, "round {round}");
        });
    }
}

#[test]
fn rank_that_leaves_too_early_is_lost() {
    for transport in TRANSPORTS {
        let errors = Ranks::run(transport, 2, |group| {
            run(group, call(Collective::Barrier, &mut [], 0)).unwrap();
            if group.rank() == 1 {
                group.close();
                return None;
            }
            let mut buffer = vec![1.0; 1000];
            Some(run(group, call(Collective::AllReduce, &mut buffer, 1000)).unwrap_err())
        });
        let error = errors[0].clone().unwrap();
        assert!(
            matches!(error, Error::PeerLost { rank: Some(1), .. }),
            "{error:?}"
        );
    }
}

#[test]
fn broken_group_keeps_its_first_error() {
    let made = Barrier::new(2);
    Ranks::run(TransportChoice::Loopback, 2, |group| {
        made.wait();
        group.abort("first reason");
        let mut buffer = vec![1.0; 1];
        let error = run(group, call(Collective::AllReduce, &mut buffer, 1)).unwrap_err();
        assert!(error.to_string().contains("reason"), "{error}");
    });
}

#[test]
fn invalid_arguments_are_refused_immediately() {
    Ranks::run(TransportChoice::Loopback, 2, |group| {
        let mut buffer = vec![1.0; 8];
        let refused = |c: Call| match run(group, c) {
            Err(Error::Config(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(refused(call(Collective::Broadcast { root: 2 }, &mut buffer, 1)).contains('2'));
        let mut c = call(Collective::AllReduce, &mut buffer, 1);
        c.op = Op::BitAnd;
        assert!(refused(c).contains("float32"));
        let mut c = call(Collective::AllReduce, &mut buffer, 1);
        c.algorithm = Some("rings".into());
        assert!(refused(c).contains("slice-reduce"));
        let mut c = call(Collective::AllGather, &mut buffer, 1);
        c.counts = Counts::PerRank(vec![1]);
        assert!(refused(c).contains("1 counts"));
        assert!(group.split(&[2], "wrong", SplitOptions::default()).is_err());
        assert!(
            group
                .split(&[0, 0], "wrong", SplitOptions::default())
                .is_err()
        );
        // None of them has broken the group.
        run(group, call(Collective::AllReduce, &mut buffer, 8)).unwrap();
    });
}

#[test]
fn wrong_message_length_fails_on_both_sides() {
    for bytes in [10, 100_000] {
        let errors = Ranks::run(TransportChoice::Shm, 2, |group| {
            let mut buffer = vec![0_u8; bytes + 1];
            let (rank, memory) = (group.rank(), buffer.as_mut_ptr());
            let sent = bytes as u64;
            let work = if rank == 0 {
                // SAFETY: the buffer lives until the wait is over.
                unsafe { group.send(1, 7, memory, sent, None, false) }
            } else {
                // SAFETY: as above.
                unsafe { group.receive(Some(0), 7, memory, sent + 1, None, false) }
            };
            work.unwrap().wait(None, &mut || false).err()
        });
        let error = errors[1].clone().unwrap().to_string();
        assert!(
            error.contains(&format!("{bytes} bytes are sent")),
            "{error}"
        );
        assert_eq!(errors[0].is_some(), bytes > 16_384);
    }
}

/// See [Note: Interrupts without the right].
#[test]
fn check_for_interrupts_holds_up_no_other_operation() {
    Ranks::run(TransportChoice::Shm, 2, |group| {
        let (mut message, mut buffer) = (0_u8, vec![1.0; 10]);
        let (start, c) = (
            &raw mut message,
            call(Collective::AllReduce, &mut buffer, 10),
        );
        if group.rank() == 1 {
            run(group, c).unwrap();
            // SAFETY: the byte lives until the wait is over.
            let sent = unsafe { group.send(0, 0, start, 1, None, false) }.unwrap();
            assert_eq!(sent.wait(None, &mut || false).unwrap(), Waited::Done);
            return;
        }
        // SAFETY: the byte lives until the wait is over.
        let received = unsafe { group.receive(Some(1), 0, start, 1, None, false) }.unwrap();
        let (checking, ended) = (&Barrier::new(2), &AtomicU32::new(0));
        std::thread::scope(|scope| {
            let mut checks = 0;
            let mut check = move || {
                checks += 1;
                if checks == 1 {
                    checking.wait();
                    let until = Instant::now() + Duration::from_secs(20);
                    while ended.load(Ordering::Acquire) == 0 && Instant::now() < until {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                false
            };
            let waits = scope.spawn(move || received.wait(None, &mut check).unwrap());
            checking.wait();
            // SAFETY: the buffer lives until the operation has ended.
            let work = unsafe { group.issue(c, true) }.unwrap();
            let until = Instant::now() + Duration::from_secs(10);
            while !work.is_done() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            let in_time = work.is_done();
            ended.store(1, Ordering::Release);
            assert!(in_time, "it waits for the check of another thread");
            assert_eq!(waits.join().unwrap(), Waited::Done);
        });
    });
}

#[test]
fn wait_can_be_interrupted_and_resumed() {
    Ranks::run(TransportChoice::Shm, 2, |group| {
        let mut buffer = vec![1.0; 10];
        let c = call(Collective::AllReduce, &mut buffer, 10);
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(200));
            return run(group, c).unwrap();
        }
        // SAFETY: the buffer lives until the second wait is over.
        let work = unsafe { group.issue(c, false) }.unwrap();
        assert_eq!(work.wait(None, &mut || true).unwrap(), Waited::Interrupted);
        assert_eq!(
            work.wait(Some(Duration::ZERO), &mut || false).unwrap(),
            Waited::NotYet
        );
        assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
        assert_eq!(buffer, vec![2.0; 10]);
    });
}
