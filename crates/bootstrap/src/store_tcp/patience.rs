//! Waiting for what a cluster brings late: the name of rank 0's host, and its address.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_call::Error;

use crate::store::CANCEL_POLL;

/// What lasts longer is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(1);

/// How long to try again what may succeed later.
pub struct Patience<'a> {
    /// Until when.
    pub deadline: Instant,
    /// Ends the attempts.
    pub cancel: &'a AtomicBool,
    /// Is given the reason once, where it takes longer than a second.
    pub on_delay: &'a dyn Fn(&str),
}

/// Why an attempt failed.
pub(super) enum Setback {
    /// For now: a name may become known, an address this host's.
    Passing(io::Error),
    Final(Error),
}

impl<'a> Patience<'a> {
    /// Reports nothing.
    pub fn quiet(deadline: Instant, cancel: &'a AtomicBool) -> Self {
        Self {
            deadline,
            cancel,
            on_delay: &|_| {},
        }
    }

    /// How long an attempt may wait, so that a report is not late.
    pub(super) fn next_report(&self) -> Instant {
        self.deadline.min(Instant::now() + REPORTED_AFTER)
    }

    /// The first success, or the last failure before the deadline.
    pub(super) fn try_until<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Setback>,
    ) -> Result<T, Setback> {
        let report_at = Instant::now() + REPORTED_AFTER;
        let mut reported = false;
        loop {
            let error = match attempt() {
                Err(Setback::Passing(error)) => error,
                result => return result,
            };
            let now = Instant::now();
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Setback::Final(Error::cancelled()));
            }
            if now >= self.deadline {
                return Err(Setback::Passing(error));
            }
            if now >= report_at && !reported {
                (self.on_delay)(&error.to_string());
                reported = true;
            }
            thread::sleep(CANCEL_POLL.min(self.deadline - now));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_comes_late_is_reported_once_and_then_found() {
        let (cancel, reports) = (AtomicBool::new(false), RefCell::new(Vec::new()));
        let started = Instant::now();
        let patience = Patience {
            deadline: started + Duration::from_secs(60),
            cancel: &cancel,
            on_delay: &|why| reports.borrow_mut().push(why.to_string()),
        };
        let found = patience.try_until(|| match started.elapsed() < REPORTED_AFTER * 2 {
            true => Err(Setback::Passing(io::Error::other("no such name"))),
            false => Ok(7),
        });
        assert!(matches!(found, Ok(7)));
        assert_eq!(reports.into_inner(), ["no such name"]);
    }

    #[test]
    fn it_ends_at_the_deadline_and_when_cancelled() {
        let missing = || Err::<(), _>(Setback::Passing(io::Error::other("no such name")));
        let cancel = AtomicBool::new(false);
        let short = Patience::quiet(Instant::now() + Duration::from_millis(20), &cancel);
        assert!(matches!(short.try_until(missing), Err(Setback::Passing(_))));
        cancel.store(true, Ordering::Relaxed);
        let long = Patience::quiet(Instant::now() + Duration::from_secs(60), &cancel);
        let ended = long.try_until(missing);
        assert!(matches!(ended, Err(Setback::Final(Error::Aborted { .. }))));
    }
}
