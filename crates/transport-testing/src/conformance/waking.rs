//! Wake-ups of sleeping endpoints by signals, messages, completions and deaths.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::memory::{LONG, pattern};
use super::{LinkPair, LinkSide, Subject};
use weft_transport::fork::Descriptor;
use weft_transport::{
    FlushState, LinkError, POOL_HEADER, RegionKey, Signal, Sleep, Submission, Woken,
};

const FLAG: u64 = POOL_HEADER;

/// Sleeps, as the runtime does, until the condition holds.
struct Sleeper {
    epoll: Option<Descriptor>,
    /// Set once it has made its last check before the first sleep: later events have to wake it.
    looked: Arc<AtomicBool>,
}

impl Sleeper {
    /// On a futex if asked to, where the doorbell reports everything.
    fn new(side: &LinkSide, futex: bool) -> Sleeper {
        let manual = side.link.capabilities().manual_progress;
        let epoll = if futex && !manual {
            None
        } else {
            Some(watch(side))
        };
        Sleeper {
            epoll,
            looked: Arc::default(),
        }
    }

    fn sleep_until(&self, side: &mut LinkSide, mut holds: impl FnMut(&LinkSide) -> bool) {
        let started = Instant::now();
        loop {
            side.pump();
            if holds(side) {
                return;
            }
            let mode = match &self.epoll {
                None => Sleep::Futex,
                Some(epoll) => Sleep::Descriptors(epoll.as_fd()),
            };
            let doorbell = Arc::clone(&side.local.doorbell);
            let mut look = || {
                let ready = holds(side);
                self.looked.store(true, Ordering::Release);
                ready
            };
            let woken = doorbell.sleep(mode, &mut look, LONG);
            assert!(
                woken != Woken::TimedOut,
                "not woken in {:?}",
                started.elapsed()
            );
        }
    }
}

/// Watches the side's link for readability, and for writability if something waits for that.
fn watch(side: &LinkSide) -> Descriptor {
    let writing = side
        .link
        .flush()
        .is_ok_and(|progress| progress == FlushState::Pending);
    let epoll = Descriptor::epoll().unwrap();
    if let Some(descriptor) = side.link.descriptor() {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | (libc::EPOLLOUT * i32::from(writing))) as u32,
            u64: 0,
        };
        let operation = libc::EPOLL_CTL_ADD;
        // SAFETY: both descriptors are open, and the event outlives the call.
        let result =
            unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, descriptor, &mut event) };
        assert_eq!(result, 0);
    }
    epoll
}

/// For both ways to sleep: `b` sleeps until the condition holds, while another thread acts on `a`.
fn check_woken(
    subject: &Subject,
    act: impl Fn(LinkSide) -> Option<LinkSide> + Copy + Send + Sync,
    holds: impl Fn(&LinkSide) -> bool + Copy,
) {
    for futex in [true, false] {
        let LinkPair { a, mut b } = LinkPair::new(subject);
        let sleeper = Sleeper::new(&b, futex);
        std::thread::scope(|scope| {
            let looked = Arc::clone(&sleeper.looked);
            // The rest of `a` is kept until `b` is done: dropping it would wake `b`.
            let acted = scope.spawn(move || {
                while !looked.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                act(a)
            });
            sleeper.sleep_until(&mut b, holds);
            drop(acted.join().unwrap());
        });
    }
}

/// A signal wakes, in both ways of sleeping.
pub fn a_signal_wakes_a_sleeper(subject: &Subject) {
    let act = |a: LinkSide| {
        a.link
            .signal(Signal {
                offset: FLAG,
                value: 1,
            })
            .unwrap();
        a.link.flush().unwrap();
        Some(a)
    };
    check_woken(subject, act, |b| b.word(FLAG) == 1);
}

/// A message wakes too, although it is in no memory that the sleeper reads.
pub fn a_message_wakes_a_sleeper(subject: &Subject) {
    let act = |a: LinkSide| {
        a.link.message(b"wake up").unwrap();
        a.link.flush().unwrap();
        Some(a)
    };
    check_woken(subject, act, |b| !b.received.messages.is_empty());
}

/// A polled message wakes too, where the sleeper checks for it.
pub fn a_polled_message_wakes_a_sleeper(subject: &Subject) {
    let act = |a: LinkSide| {
        a.link.polled_message(&[b"wake up"]).unwrap();
        a.link.flush().unwrap();
        Some(a)
    };
    check_woken(subject, act, |b| {
        let polled = b.polled();
        polled.is_some_and(|polled| polled.has_polled_message()) || !b.received.messages.is_empty()
    });
}

/// The completion of the sleeper's own operation wakes it too, once the peer receives.
pub fn a_completion_wakes_a_sleeper(subject: &Subject) {
    for futex in [true, false] {
        let LinkPair { mut a, mut b } = LinkPair::new(subject);
        let memory = b.memory(&[&pattern(1, 16 << 20)]);
        let posted = b.link.put(RegionKey::POOL, FLAG, &memory.source(), None);
        let Submission::UnderWay(ticket) = posted.unwrap() else {
            return;
        };
        let sleeper = Sleeper::new(&b, futex);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    a.pump();
                    std::thread::yield_now();
                }
            });
            sleeper.sleep_until(&mut b, |b| b.link.completed(ticket).unwrap());
            over.store(true, Ordering::Release);
        });
    }
}

/// The end of the peer wakes too.
pub fn a_death_wakes_a_sleeper(subject: &Subject) {
    let act = |a: LinkSide| {
        drop(a);
        None
    };
    check_woken(subject, act, |b| {
        matches!(b.received.end, Some(LinkError::Gone(_)))
    });
}

/// Thousands of round trips in which both sides sleep whenever they wait.
pub fn ping_pong_never_misses_a_wake(subject: &Subject) {
    const ROUNDS: u64 = 3000;
    for futex in [true, false] {
        let LinkPair { mut a, mut b } = LinkPair::new(subject);
        let (a_sleeper, b_sleeper) = (Sleeper::new(&a, futex), Sleeper::new(&b, futex));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for value in 1..=ROUNDS {
                    b_sleeper.sleep_until(&mut b, |b| seen(b, value));
                    b.link
                        .signal(Signal {
                            offset: FLAG,
                            value,
                        })
                        .unwrap();
                }
                // Sends what is left, and stays until the peer has seen it.
                b_sleeper.sleep_until(&mut b, |b| !b.received.messages.is_empty());
            });
            for value in 1..=ROUNDS {
                a.link
                    .signal(Signal {
                        offset: FLAG,
                        value,
                    })
                    .unwrap();
                a_sleeper.sleep_until(&mut a, |a| seen(a, value));
            }
            a.link.message(b"done").unwrap();
            while a.link.flush().unwrap() == FlushState::Pending {
                std::thread::yield_now();
            }
        });
    }
}

fn seen(side: &LinkSide, value: u64) -> bool {
    side.local.pool.word(FLAG).load(Ordering::Acquire) >= value
}
