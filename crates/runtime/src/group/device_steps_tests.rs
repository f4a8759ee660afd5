//! Tests of the steps on memory of devices: see [Note: From word to word].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_bootstrap::{MemoryStore, TransportChoice};
use weft_call::{Call, Counts, Op, Tiling};
use weft_kernels::DType;
use weft_schedule::Collective;

use super::tests::endpoint;
use super::*;
use crate::Error;

const WAIT: Option<Duration> = Some(Duration::from_secs(20));

/// A group of one rank.
fn alone() -> Arc<Group> {
    let (options, never) = (GroupOptions::default(), AtomicBool::new(false));
    let (endpoint, store) = (endpoint(TransportChoice::Loopback), MemoryStore::new());
    Group::create(endpoint, &store, 0, 1, options, &never).unwrap()
}

/// A collective's words, which are set to 1, and the operation that it is a part of.
struct Words {
    arrival: &'static AtomicU32,
    release: &'static AtomicU32,
    part: Arc<HostPart>,
}

impl Words {
    fn new(part: &Arc<HostPart>) -> Self {
        let word = || &*Box::leak(Box::new(AtomicU32::new(0)));
        let (arrival, release) = (word(), word());
        let part = part.clone();
        Words {
            arrival,
            release,
            part,
        }
    }

    fn arrive(&self) {
        self.arrival.store(1, Ordering::Release);
    }

    fn released(&self) -> bool {
        self.release.load(Ordering::Acquire) == 1
    }

    fn step(
        &self,
        begin: impl FnOnce() -> Result<Work, Error> + Send + 'static,
    ) -> DeviceCollective {
        DeviceCollective {
            device: 7,
            arrival: DeviceWord::new(self.arrival, 1),
            begin: Box::new(begin),
            release: DeviceWord::new(self.release, 1),
            part: self.part.clone(),
        }
    }
}

fn all_reduce(group: &Group) -> Result<Work, Error> {
    let memory: &'static mut [f32] = Box::leak(Box::new([1.0; 10]));
    let call = Call {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: Op::Sum,
        input: memory.as_ptr().cast(),
        output: memory.as_mut_ptr().cast(),
        counts: Counts::Equal(10),
        priority: 0,
        timeout: None,
        algorithm: None,
        tiling: Tiling::default(),
        wire: None,
    };
    // SAFETY: the memory is never freed.
    unsafe { group.issue(call, true) }
}

/// Adds a collective on a group, for which there is room.
fn put<T>(steps: &DeviceSteps<T>, words: &Words, group: &Arc<Group>) {
    let group = group.clone();
    assert_eq!(steps.take_room(&mut || false), Waited::Done);
    steps.add_collective(words.step(move || all_reduce(&group)));
}

#[test]
fn collectives_go_from_word_to_word_in_one_order_with_others() {
    let (group, steps) = (alone(), DeviceSteps::new(8));
    let part = HostPart::new(2);
    let (first, second) = (Words::new(&part), Words::new(&part));
    put(&steps, &first, &group);
    put(&steps, &second, &group);
    steps.add_other("a step of the caller's");
    second.arrive();
    thread::scope(|scope| {
        let other = scope.spawn(|| steps.next());
        let waited = part.wait(Some(Duration::from_millis(50)), &mut || false);
        assert_eq!(waited, Waited::NotYet);
        assert!(!first.released() && !second.released() && !other.is_finished());
        first.arrive();
        assert_eq!(other.join().unwrap(), Some("a step of the caller's"));
    });
    assert_eq!(part.wait(WAIT, &mut || false), Waited::Done);
    while !first.released() || !second.released() {
        thread::yield_now();
    }
    assert!(part.error().is_none() && !part.is_skipped());
    steps.close();
    assert_eq!(steps.next(), None);
    steps.close_reports();
    assert!(steps.report().is_none());
}

#[test]
fn first_failure_is_reported_and_releases_all() {
    let (group, steps) = (alone(), DeviceSteps::<()>::new(8));
    let (failing, skipped) = (HostPart::new(1), HostPart::new(1));
    let (first, second) = (Words::new(&failing), Words::new(&skipped));
    group.abort("enough");
    put(&steps, &first, &group);
    put(&steps, &second, &group);
    first.arrive();
    steps.close();
    assert_eq!(steps.next(), None);
    assert!(first.released() && second.released());
    assert!(failing.is_over() && skipped.is_over());
    assert!(failing.error().unwrap().to_string().contains("enough"));
    assert!(!failing.is_skipped() && skipped.is_skipped() && skipped.error().is_none());
    assert!(matches!(
        steps.report(),
        Some(Report::Failed(Error::Aborted { .. }))
    ));
    assert!(steps.failure().is_some());
    steps.close_reports();
    assert!(steps.report().is_none(), "it is reported once");
}

#[test]
fn somebody_is_asked_to_look_at_a_device_that_is_silent() {
    let (group, steps) = (alone(), DeviceSteps::<()>::new(8));
    let part = HostPart::new(1);
    let words = Words::new(&part);
    put(&steps, &words, &group);
    thread::scope(|scope| {
        scope.spawn(|| steps.next());
        assert!(matches!(steps.report(), Some(Report::Look(7))));
        steps.stop();
        steps.close();
    });
    assert!(part.is_skipped() && words.released());
}

#[test]
fn long_wait_for_a_device_looks_seldom() {
    let (word, mut looks) = (Box::leak(Box::new(AtomicU32::new(0))), 0);
    let arrived = DeviceWord::new(word, 1).wait(|waited| {
        looks += 1;
        waited >= Duration::from_secs(1)
    });
    assert!(!arrived);
    assert!(looks < 1000, "{looks} looks; sleeps of 0.5 ms make 2,000");
}

#[test]
fn room_is_given_back_at_the_end_of_a_collective() {
    let (group, steps) = (alone(), DeviceSteps::<()>::new(1));
    let part = HostPart::new(1);
    let words = Words::new(&part);
    put(&steps, &words, &group);
    assert_eq!(steps.take_room(&mut || true), Waited::Interrupted);
    words.arrive();
    steps.close();
    steps.next();
    assert_eq!(steps.take_room(&mut || false), Waited::Done);
    assert!(words.released());
}

/// A check for interrupts may wait for what only the end of the collectives makes possible.
#[test]
fn end_of_a_part_waits_for_no_check() {
    let part = HostPart::new(1);
    let words = Words::new(&part);
    let (group, steps) = (alone(), DeviceSteps::<()>::new(1));
    put(&steps, &words, &group);
    steps.close();
    thread::scope(|scope| {
        let steps = &steps;
        let waited = part.wait(None, &mut || {
            scope.spawn(|| steps.next());
            words.arrive();
            let until = Instant::now() + Duration::from_secs(20);
            while !words.released() && Instant::now() < until {
                thread::yield_now();
            }
            false
        });
        assert_eq!(waited, Waited::Done);
        assert!(words.released());
    });
}
