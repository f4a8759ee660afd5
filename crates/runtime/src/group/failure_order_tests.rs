//! Tests of operations that complete or fail when a group breaks: see [Note: Failures are ordered].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use weft_bootstrap::{MemoryStore, TransportChoice};
use weft_call::{Call, Counts, Op, Tiling};
use weft_kernels::DType;
use weft_schedule::Collective;
use weft_transport_testing::strict;

use super::tests::endpoint;
use super::*;
use crate::Error;

const TRANSPORTS: [TransportChoice; 4] = [
    TransportChoice::Loopback,
    TransportChoice::Shm,
    TransportChoice::Tcp,
    TransportChoice::Custom(strict),
];
/// On the calling-thread path, where memory is mapped, and in a lane.
const SIZES: [usize; 2] = [5, 30_000];

/// The ranks of a group, all in this process.
fn groups(transport: TransportChoice, size: u32) -> Vec<Arc<Group>> {
    let store = MemoryStore::new();
    let create = |rank| {
        let (options, never) = (GroupOptions::default(), AtomicBool::new(false));
        Group::create(endpoint(transport), &store, rank, size, options, &never).unwrap()
    };
    std::thread::scope(|scope| {
        let create = &create;
        let ranks: Vec<_> = (0..size)
            .map(|rank| scope.spawn(move || create(rank)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// An operation in the background, and its memory.
struct Issued {
    work: Work,
    memory: Vec<f32>,
}

impl Issued {
    fn new(group: &Group, collective: Collective, elements: usize) -> Self {
        let mut memory = vec![group.rank() as f32 + 1.0; elements];
        let address = memory.as_mut_ptr().cast::<u8>();
        let call = Call {
            collective,
            dtype: DType::F32,
            op: Op::Sum,
            input: address,
            output: address,
            counts: Counts::Equal(elements as u64),
            priority: 0,
            timeout: Some(Duration::from_secs(60)),
            algorithm: None,
            tiling: Tiling::default(),
            wire: None,
        };
        // SAFETY: the memory has the call's length, and is kept until the operation has ended.
        let work = unsafe { group.issue(call, true) }.unwrap();
        Issued { work, memory }
    }

    /// The first element of the result.
    fn result(&self) -> Result<f32, Error> {
        self.work.wait(None, &mut || false)?;
        assert!(self.memory.iter().all(|value| *value == self.memory[0]));
        Ok(self.memory[0])
    }
}

/// Runs something while a rank makes no progress.
fn while_stopped<T>(group: &Group, body: impl FnOnce() -> T) -> T {
    let (stopped, when_stopped) = mpsc::channel();
    let (resume, resumed) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            group.engine.with(|_, _| {
                stopped.send(()).unwrap();
                let _ = resumed.recv();
            });
        });
        when_stopped.recv().unwrap();
        let result = body();
        drop(resume);
        result
    })
}

fn failure() -> Error {
    Error::Config("a failure".into())
}

/// Breaks a group by a failure outside of its operations.
fn break_group(group: &Group, error: &Error) {
    group.engine.with(|state, finished| {
        let group = state.groups.get_mut(&group.id).unwrap();
        group.break_group(error, finished);
    });
}

#[test]
fn abort_does_not_overtake_a_complete_operation() {
    for transport in TRANSPORTS {
        for elements in SIZES {
            let groups = groups(transport, 2);
            if groups[0].calling_thread.is_some() && elements > SIZES[0] {
                // The receiver of a long message copies it, so no rank is ahead.
                continue;
            }
            let broadcast = Collective::Broadcast { root: 0 };
            // Ranks grant each other memory on first use.
            let first = [0, 1].map(|rank| Issued::new(&groups[rank], broadcast, elements));
            assert!(first.iter().all(|work| work.result() == Ok(1.0)));
            let late = Issued::new(&groups[1], broadcast, elements);
            while_stopped(&groups[1], || {
                assert_eq!(
                    Issued::new(&groups[0], broadcast, elements).result(),
                    Ok(1.0)
                );
                groups[0].abort("enough");
            });
            assert_eq!(late.result(), Ok(1.0), "{transport:?}, {elements} elements");
            while groups[1].broken().is_none() {
                groups[1].receive_messages();
            }
        }
    }
}

#[test]
fn abort_ends_incomplete_operations_on_all_ranks() {
    for transport in TRANSPORTS {
        for elements in SIZES {
            let groups = groups(transport, 3);
            let issue = |rank: usize| Issued::new(&groups[rank], Collective::AllReduce, elements);
            let works = [issue(0), issue(1)];
            groups[1].abort("enough");
            for work in works {
                let error = work.result().unwrap_err();
                assert!(
                    matches!(error, Error::Aborted { .. }),
                    "{transport:?}: {error}"
                );
            }
        }
    }
}

#[test]
fn child_ends_with_the_error_of_a_broken_group() {
    let timeout = Error::Timeout {
        operation: "a call".into(),
        waiting_for: "rank 1".into(),
        after: Duration::from_secs(1),
    };
    for transport in TRANSPORTS {
        let groups = groups(transport, 3);
        let children: Vec<_> = (groups.iter())
            .map(|group| group.split(&[0, 1, 2], "child", SplitOptions::default()))
            .map(|child| child.unwrap().unwrap())
            .collect();
        let works = [0, 1].map(|rank| Issued::new(&children[rank], Collective::AllReduce, 5));
        children[0].abort_as(&groups[0]); // it is not broken yet
        assert_eq!(children[0].broken(), None);
        break_group(&groups[2], &timeout);
        while groups[0].broken().is_none() {
            groups[0].receive_messages();
        }
        children[0].abort_as(&groups[0]);
        for work in works {
            let error = work.result().unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, Error::Timeout { .. }),
                "{transport:?}: {text}"
            );
            assert_eq!(
                text.matches("rank 2: a call").count(),
                1,
                "{transport:?}: {text}"
            );
        }
    }
}

#[test]
fn operations_issued_by_all_complete_in_broken_group() {
    for transport in TRANSPORTS {
        for elements in SIZES {
            let groups = groups(transport, 3);
            let issue = |rank: usize| Issued::new(&groups[rank], Collective::AllReduce, elements);
            let first = issue(0);
            let others = while_stopped(&groups[0], || {
                let others = [issue(1), issue(2)];
                break_group(&groups[2], &failure());
                others
            });
            for work in [first].iter().chain(&others) {
                assert_eq!(work.result(), Ok(6.0), "{transport:?}, {elements} elements");
            }
        }
    }
}

#[test]
fn operations_not_issued_by_all_fail_immediately() {
    for transport in TRANSPORTS {
        for elements in SIZES {
            let groups = groups(transport, 4);
            let issue = |rank: usize| Issued::new(&groups[rank], Collective::AllReduce, elements);
            // Rank 3 issues at the same time, before it learns of the failure.
            let works = [issue(0), issue(1), issue(3)];
            let began = Instant::now();
            break_group(&groups[2], &failure());
            for work in works {
                let error = work.result().unwrap_err();
                assert!(
                    error.to_string().contains("a failure"),
                    "{transport:?}: {error}"
                );
            }
            assert!(
                began.elapsed() < Duration::from_millis(450),
                "{:?}",
                began.elapsed()
            );
        }
    }
}

#[test]
fn stopped_rank_delays_a_failure_only_briefly() {
    for transport in [TransportChoice::Loopback, TransportChoice::Tcp] {
        for elements in SIZES {
            let groups = groups(transport, 3);
            let issue = |rank: usize| Issued::new(&groups[rank], Collective::AllReduce, elements);
            while_stopped(&groups[0], || {
                let works = [issue(1), issue(2)];
                break_group(&groups[2], &failure());
                for work in works {
                    let error = work.result().unwrap_err();
                    assert!(
                        error.to_string().contains("a failure"),
                        "{transport:?}: {error}"
                    );
                }
            });
        }
    }
}

#[test]
fn rank_that_leaves_early_is_reported_as_lost() {
    for transport in TRANSPORTS {
        for elements in SIZES {
            let groups = groups(transport, 3);
            let issue = |rank: usize| Issued::new(&groups[rank], Collective::AllReduce, elements);
            let works = [issue(0), issue(1)];
            groups[1].close();
            let errors = works.map(|work| work.result().unwrap_err().to_string());
            assert!(errors[0].contains("rank 1"), "{transport:?}: {}", errors[0]);
            assert!(
                errors[0].contains("before all operations had ended"),
                "{transport:?}: {}",
                errors[0]
            );
            assert!(errors[1].contains("closed"), "{transport:?}: {}", errors[1]);
        }
    }
}
