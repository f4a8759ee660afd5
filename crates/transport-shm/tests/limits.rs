//! Test of endpoints whose process runs out of descriptors while one calls the other.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use weft_transport::{EndpointId, Link, LinkError, LinkEvents, Local, Transport, is_own_limit};
use weft_transport_shm::ShmTransport;
use weft_transport_testing::limits::{limit_descriptors, next_descriptor};

/// More than a link needs.
const LEFT_MAX: libc::rlim_t = 16;

const PATIENCE: Duration = Duration::from_secs(20);

/// Counts how often it was told that callers wait in vain.
#[derive(Default)]
struct Told {
    times: Mutex<u32>,
    changed: Condvar,
}

impl LinkEvents for Told {
    fn accept(&self, _: EndpointId) -> bool {
        true
    }

    fn connected(&self, _: Arc<dyn Link>) {}

    fn exhausted(&self) {
        *self.times.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

impl Told {
    fn times(&self) -> u32 {
        *self.times.lock().unwrap()
    }

    /// Whether it is told once more than so many times, before long.
    fn once_more_than(&self, before: u32) -> bool {
        let told = self.times.lock().unwrap();
        let enough = |told: &mut u32| *told <= before;
        let waited = (self.changed).wait_timeout_while(told, PATIENCE, enough);
        !waited.unwrap().1.timed_out()
    }
}

#[test]
fn whoever_runs_out_of_descriptors_says_so_and_links_are_made_once_there_are_enough() {
    let [caller, called] = [(); 2].map(|()| {
        let local = Local::create(1 << 20).unwrap();
        (local.id, ShmTransport::new(local).unwrap())
    });
    let told = Arc::new(Told::default());
    called.1.listen(told.clone()).unwrap();
    let address = called.1.address();
    let never = AtomicBool::new(false);
    let mut told_by = [0, 0];
    for left in 0..=LEFT_MAX {
        let before = limit_descriptors(next_descriptor() + left);
        let told_before = told.times();
        let deadline = Instant::now() + Duration::from_secs(2);
        let connected = caller.1.connect(called.0, &address, deadline, &never);
        limit_descriptors(before);
        match connected {
            Err(LinkError::Io(error)) if is_own_limit(&error) => told_by[0] += 1,
            Err(error) => {
                let is_told = told.once_more_than(told_before);
                assert!(is_told, "with {left} left, nobody is told: {error}");
                told_by[1] += 1;
            }
            Ok(link) => {
                link.expect("it was accepted").close();
                assert!(left > 0);
                assert!(told_by.iter().all(|times| *times > 0), "{told_by:?}");
                return;
            }
        }
    }
    panic!("{LEFT_MAX} descriptors are not enough for a link");
}
