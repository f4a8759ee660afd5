//! The status of a job as its watchers get it: JSON.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use weft_bootstrap::Store;
use weft_channel::RankStatus;
use weft_flight::RecordedJob;

use super::super::engine::Engine;
use super::super::group_state::GroupState;
use super::super::state::ProgressState;
use super::server::{StatusServer, StatusService};
use super::verdict::{SilentRank, Verdict, verdict};

/// The version of the layout.
const VERSION: u32 = 1;
/// How long statuses are waited for: where a rank is stopped, as long as this.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// And how long if only ranks are missing that did not answer the last time either.
const ANSWER_TIME_MAX_AGAIN: Duration = Duration::from_millis(250);

/// The status of a job.
#[derive(Serialize)]
struct Report {
    version: u32,
    /// The group that was asked, by name.
    group: String,
    size: u32,
    /// How long it took to ask, in microseconds.
    took_us: u64,
    ranks: Vec<RankStatus>,
    silent: Vec<SilentRank>,
    verdict: Verdict,
}

/// The group that is asked, and its members.
#[derive(Default)]
struct Asked {
    id: u64,
    name: String,
    members: Vec<SilentRank>,
}

impl Engine {
    /// Answers programs that watch the job, from its first group on.
    pub(crate) fn serve_status(self: &Arc<Self>) {
        let flight = self.endpoint().flight().clone();
        let Some(job) = flight.job() else { return };
        let mut service = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        match &*service {
            StatusService::Ended => return,
            StatusService::Started(served, _) if *served == job => return,
            _ => {}
        }
        let server = StatusServer::start(move || flight.listen(job).ok()?, self.reporter());
        let former = std::mem::replace(&mut *service, StatusService::Started(job, server));
        drop(service);
        drop(former);
    }

    /// Answers no more programs that watch a job which has ended: its socket's file goes.
    pub(crate) fn end_job(&self, ended: RecordedJob) {
        let service = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if let StatusService::Started(job, Some(server)) = &*service
            && *job == ended
        {
            server.stop();
        }
    }

    /// Answers those who ask at the store where the ranks meet, too, if this process serves it.
    pub(crate) fn answer_at(self: &Arc<Self>, store: &dyn Store) {
        store.answer_status(Arc::new(self.reporter()));
    }

    /// Reports on the job, until this engine is dropped.
    fn reporter(self: &Arc<Self>) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let engine = Arc::downgrade(self);
        let silent_before: Mutex<Vec<SilentRank>> = Mutex::default();
        move || {
            let last = || silent_before.lock().unwrap_or_else(PoisonError::into_inner);
            let before = last().clone();
            let report = Report::of_job(&*engine.upgrade()?, &before);
            last().clone_from(&report.silent);
            Some(report.to_json())
        }
    }

    /// Answers no more programs: the socket's file goes.
    pub(crate) fn end_status(&self) {
        let mut service = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::replace(&mut *service, StatusService::Ended);
        drop(service);
        drop(ended);
    }
}

impl Report {
    /// Asks all ranks of the job. `silent_before`: those that did not answer the last time.
    fn of_job(engine: &Engine, silent_before: &[SilentRank]) -> Report {
        let (begun, (sender, receiver)) = (Instant::now(), channel());
        let asked = engine.with(|state, _| {
            let asked = widest_group(state)?;
            // Without an inquiry nobody answers, which the report says.
            let _ = state.begin_inquiry(asked.id, sender, false);
            Some(asked)
        });
        // A process whose groups are closed has nobody to ask.
        let asked = asked.unwrap_or_default();
        let (ranks, silent) = collect(&receiver, &asked.members, silent_before);
        Report {
            version: VERSION,
            group: asked.name,
            size: asked.members.len() as u32,
            took_us: begun.elapsed().as_micros() as u64,
            verdict: verdict(&ranks, &silent),
            ranks,
            silent,
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }
}

/// The statuses that come within a second, by rank, and the members that did not answer.
pub(super) fn collect(
    receiver: &Receiver<RankStatus>,
    members: &[SilentRank],
    silent_before: &[SilentRank],
) -> (Vec<RankStatus>, Vec<SilentRank>) {
    let begun = Instant::now();
    let mut answers = BTreeMap::new();
    let mut silent: BTreeMap<u32, &SilentRank> =
        members.iter().map(|member| (member.rank, member)).collect();
    while !silent.is_empty() {
        let mut missing = silent.values();
        let time_max = match missing.all(|member| silent_before.contains(member)) {
            true => ANSWER_TIME_MAX_AGAIN,
            false => ANSWER_TIME_MAX,
        };
        let left = (begun + time_max).saturating_duration_since(Instant::now());
        let Ok(status) = receiver.recv_timeout(left) else {
            break;
        };
        silent.remove(&status.rank);
        answers.insert(status.rank, status);
    }
    let silent = silent.into_values().cloned().collect();
    (answers.into_values().collect(), silent)
}

/// The open group with the most ranks; of several, one that is not broken.
fn widest_group(state: &ProgressState) -> Option<Asked> {
    let open = state.groups.values().filter(|group| !group.closed);
    let group = open.max_by_key(|group| (group.broken.is_none(), group.size(), !group.id))?;
    Some(Asked {
        id: group.id,
        name: group.name.to_string(),
        members: members(group),
    })
}

/// The ranks of a group, of which no answer is here yet.
pub(super) fn members(group: &GroupState) -> Vec<SilentRank> {
    let members = (0..group.size()).map(|rank| SilentRank {
        rank,
        global_rank: group.name.rank(rank),
        host: group.connections.host_name(rank).into(),
    });
    members.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32) -> SilentRank {
        SilentRank {
            rank,
            global_rank: rank,
            host: "host".into(),
        }
    }

    /// Asks ranks 0 to 2, of which rank 0 answers. Returns the silent ones, and the time it took.
    fn ask(silent_before: &[SilentRank]) -> (Vec<SilentRank>, Duration) {
        let (sender, receiver) = channel();
        sender.send(RankStatus::default()).unwrap();
        let begun = Instant::now();
        let (answered, silent) = collect(&receiver, &[0, 1, 2].map(member), silent_before);
        assert_eq!(answered.len(), 1);
        (silent, begun.elapsed())
    }

    #[test]
    fn ranks_that_were_silent_before_are_waited_for_a_shorter_time() {
        let (silent, first) = ask(&[]);
        assert_eq!(silent, [member(1), member(2)]);
        assert!(ask(&silent[..1]).1 >= ANSWER_TIME_MAX);
        let (still_silent, again) = ask(&silent);
        assert_eq!(still_silent, silent);
        assert!(again < first);
    }
}
