//! Retries for resources that a cluster provides late: the name of rank 0's host, and its address.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_call::Error;

use crate::store::CANCEL_POLL;

/// A longer delay is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(1);

/// The limits of retries.
pub struct Retry<'a> {
    /// When to stop.
    pub deadline: Instant,
    /// Ends the retries when set.
    pub cancel: &'a AtomicBool,
    /// Called once with the reason, if it takes longer than a second.
    pub on_delay: &'a dyn Fn(&str),
}

/// The failure of an attempt.
pub(super) enum AttemptFailure {
    /// Temporary: a name may become known, an address may become this host's.
    Passing(io::Error),
    Final(Error),
}

impl<'a> Retry<'a> {
    /// Without a report.
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
        mut attempt: impl FnMut() -> Result<T, AttemptFailure>,
    ) -> Result<T, AttemptFailure> {
        let report_at = Instant::now() + REPORTED_AFTER;
        let mut reported = false;
        loop {
            let error = match attempt() {
                Err(AttemptFailure::Passing(error)) => error,
                result => return result,
            };
            let now = Instant::now();
            if self.cancel.load(Ordering::Relaxed) {
                return Err(AttemptFailure::Final(Error::cancelled()));
            }
            if now >= self.deadline {
                return Err(AttemptFailure::Passing(error));
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
    fn late_resource_is_reported_once_and_found() {
        let (cancel, reports) = (AtomicBool::new(false), RefCell::new(Vec::new()));
        let started = Instant::now();
        let retry = Retry {
            deadline: started + Duration::from_secs(60),
            cancel: &cancel,
            on_delay: &|why| reports.borrow_mut().push(why.to_string()),
        };
        let found = retry.try_until(|| match started.elapsed() < REPORTED_AFTER * 2 {
            true => Err(AttemptFailure::Passing(io::Error::other("no such name"))),
            false => Ok(7),
        });
        assert!(matches!(found, Ok(7)));
        assert_eq!(reports.into_inner(), ["no such name"]);
    }

    #[test]
    fn retries_end_at_deadline_or_cancellation() {
        let missing = || Err::<(), _>(AttemptFailure::Passing(io::Error::other("no such name")));
        let cancel = AtomicBool::new(false);
        let short = Retry::quiet(Instant::now() + Duration::from_millis(20), &cancel);
        assert!(matches!(
            short.try_until(missing),
            Err(AttemptFailure::Passing(_))
        ));
        cancel.store(true, Ordering::Relaxed);
        let long = Retry::quiet(Instant::now() + Duration::from_secs(60), &cancel);
        let ended = long.try_until(missing);
        assert!(matches!(
            ended,
            Err(AttemptFailure::Final(Error::Aborted { .. }))
        ));
    }
}
