//! Answers to programs that ask for the job's status at the store.
//!
//! The process that serves the store gathers the status, which may take a second: a connection that
//! asks leaves the server's thread for one of its own, and ends with the answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::StoreAccess;
use super::protocol::{StoreReply, VALUE_BYTES_MAX};
use super::served::ServedConnection;
use crate::store::StatusReport;

/// The most programs that are answered at a time.
const ASKERS_MAX: usize = 4;
/// A caller that takes no byte of its answer for this long gets none.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// The source of answers.
#[derive(Default)]
pub(super) struct StatusAnswers {
    /// None until this process is a rank of a group.
    report: Mutex<Option<StatusReport>>,
    /// Has a reference for each connection that is answered now, and this one.
    askers: Arc<()>,
}

impl StatusAnswers {
    pub(super) fn answer_by(&self, report: StatusReport) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    fn report(&self) -> Option<StatusReport> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone()
    }

    /// The reason that a client gets no status, if any.
    pub(super) fn refusal(&self, access: &StoreAccess) -> Option<String> {
        if matches!(access, StoreAccess::Anybody) {
            return Some("this job has no secret (WEFT_INSECURE): ask on one of its hosts".into());
        }
        if self.report().is_none() {
            return Some("rank 0 is in no group yet".into());
        }
        let busy = Arc::strong_count(&self.askers) > ASKERS_MAX;
        busy.then(|| format!("{ASKERS_MAX} programs are being answered already"))
    }

    /// Answers a connection that was not refused, and closes it.
    pub(super) fn answer(&self, mut connection: ServedConnection) {
        let (asker, report) = (Arc::clone(&self.askers), self.report());
        let answer = move || {
            let _asker = asker;
            match report.and_then(|report| report()) {
                Some(text) if text.len() <= VALUE_BYTES_MAX => {
                    connection.reply_values(vec![text.into_bytes().into()]);
                }
                Some(_) => connection.reply(&refused("the status is too long to be sent")),
                None => connection.reply(&refused("the job has ended")),
            }
            // The caller may be gone.
            let _ = connection.wait_until_sent(WRITE_TIMEOUT);
        };
        // Without a thread, the connection ends.
        let _ = thread::Builder::new()
            .name("weft-answer".into())
            .spawn(answer);
    }
}

fn refused(why: &str) -> StoreReply {
    StoreReply::Refused(why.into())
}
