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

/// Counts the reports of waiting callers.
#[derive(Default)]
struct ExhaustionCount {
    times: Mutex<u32>,
    changed: Condvar,
}

impl LinkEvents for ExhaustionCount {
    fn accept(&self, _: EndpointId) -> bool {
        true
    }

    fn connected(&self, _: Arc<dyn Link>) {}

    fn exhausted(&self) {
        *self.times.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

impl ExhaustionCount {
    fn times(&self) -> u32 {
        *self.times.lock().unwrap()
    }

    /// Whether another report arrives within the timeout.
    fn rises_above(&self, before: u32) -> bool {
        let count = self.times.lock().unwrap();
        let enough = |count: &mut u32| *count <= before;
        let waited = (self.changed).wait_timeout_while(count, PATIENCE, enough);
        !waited.unwrap().1.timed_out()
    }
}

#[test]
fn missing_descriptors_are_reported_until_links_work() {
    let [caller, called] = [(); 2].map(|()| {
        let local = Local::create(1 << 20).unwrap();
        (local.id, ShmTransport::new(local).unwrap())
    });
    let reports = Arc::new(ExhaustionCount::default());
    called.1.listen(reports.clone()).unwrap();
    let address = called.1.address();
    let never = AtomicBool::new(false);
    let mut failures = [0, 0];
    for left in 0..=LEFT_MAX {
        let before = limit_descriptors(next_descriptor() + left);
        let count_before = reports.times();
        let deadline = Instant::now() + Duration::from_secs(2);
        let connected = caller.1.connect(called.0, &address, deadline, &never);
        limit_descriptors(before);
        match connected {
            Err(LinkError::Io(error)) if is_own_limit(&error) => failures[0] += 1,
            Err(error) => {
                let reported = reports.rises_above(count_before);
                assert!(reported, "with {left} left, nothing is reported: {error}");
                failures[1] += 1;
            }
            Ok(link) => {
                link.expect("it was accepted").close();
                assert!(left > 0);
                assert!(failures.iter().all(|times| *times > 0), "{failures:?}");
                return;
            }
        }
    }
    panic!("{LEFT_MAX} descriptors are not enough for a link");
}
