//! Exchange of values between ranks through the store: on every topic each rank sets one key, rank
//! 0 reads them all together and sets one answer, and every other rank reads that.
//!
//! So a rank sets and reads as many keys as there are topics, independent of the number of ranks,
//! and those of rank 0 are in few requests. See benches/runs/2026-11-23-rendezvous-at-scale.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_call::Error;

use super::super::store::Store;
use super::super::store_tcp::KEYS_MAX;

/// In larger groups only rank 0 checks which ranks are missing: otherwise each rank would check
/// each.
const CHECKED_RANKS_MAX: u32 = 1024;

/// The interval at which a waiting rank checks whether another has failed; in large groups, for
/// ranks other than 0, the interval per rank.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
const CHECK_INTERVAL_PER_RANK: Duration = Duration::from_millis(1);

/// How long rank 0 stays after a failed rendezvous, for ranks that have not read the failure.
const FAILURE_LINGER: Duration = Duration::from_millis(500);
/// The same if it fails before it has joined the rendezvous: others may join later.
const EARLY_FAILURE_LINGER: Duration = Duration::from_secs(5);

/// The key that a failing rank sets, for ranks that wait for any other.
const FAILED_KEY: &str = "failed";

/// The topics, in this order. Not every rendezvous has all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Topic {
    Address,
    Host,
    RoundTrip,
}

impl Topic {
    const ALL: [Topic; 3] = [Topic::Address, Topic::Host, Topic::RoundTrip];

    fn name(self) -> &'static str {
        match self {
            Topic::Address => "address",
            Topic::Host => "host",
            Topic::RoundTrip => "round-trip",
        }
    }

    /// The key for a rank's value.
    fn key(self, rank: u32) -> String {
        format!("{}/{rank}", self.name())
    }

    /// The key for rank 0's answer.
    fn answer_key(self) -> String {
        format!("{}/all", self.name())
    }
}

/// A rank's value on a topic.
#[derive(Serialize, Deserialize)]
enum RankReport {
    Value(Vec<u8>),
    /// It has failed, with this reason.
    Failed(String),
}

/// Rank 0's answer.
#[derive(Serialize, Deserialize)]
enum TopicAnswer {
    Value(Vec<u8>),
    /// A rank has failed, with this reason.
    Failed {
        rank: u32,
        why: String,
    },
    /// All ranks must fail.
    Refused(Error),
}

/// The reason that a rendezvous has failed: the value of [`FAILED_KEY`].
#[derive(Serialize, Deserialize)]
struct MeetingFailure {
    rank: u32,
    why: String,
}

/// The errors in place of rank 0's answer.
pub(super) struct MeetingRefusal {
    /// For this rank.
    pub(super) here: Error,
    /// For the others.
    pub(super) others: Error,
}

impl From<Error> for Box<MeetingRefusal> {
    fn from(error: Error) -> Self {
        Box::new(MeetingRefusal {
            here: error.clone(),
            others: error,
        })
    }
}

/// One rank's side of the exchange.
pub(super) struct Exchange<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) deadline: Instant,
    pub(super) cancel: &'a AtomicBool,
    /// The first topic that is not settled for the others.
    open: Cell<usize>,
    /// Whether the rendezvous is another job's: nothing is published there.
    foreign: Cell<bool>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        store: &'a dyn Store,
        (rank, size): (u32, u32),
        deadline: Instant,
        cancel: &'a AtomicBool,
    ) -> Self {
        Exchange {
            store,
            rank,
            size,
            deadline,
            cancel,
            open: Cell::new(0),
            foreign: Cell::new(false),
        }
    }

    /// Publishes this rank's value, and returns rank 0's answer, which is made from all values in
    /// the order of the ranks.
    pub(super) fn settle(
        &self,
        topic: Topic,
        mine: Vec<u8>,
        answer: impl FnOnce(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        self.publish(topic, mine)?;
        match self.rank {
            0 => self.answer_all(topic, |values| Ok(answer(values))),
            _ => self.read_answer(topic),
        }
    }

    /// Ends a rendezvous that has failed: no rank waits for this one. Rank 0, whose process may
    /// serve the store and end for this error, stays until the ranks that have joined have read the
    /// failure.
    pub(super) fn call_off(&self, error: &Error) {
        let joined = self.store.has(&Topic::Address.key(self.rank));
        // A store that fails has failed for every rank.
        if self.foreign.get() || joined.is_err() || self.publish_failure(error).is_err() {
            return;
        }
        match self.rank {
            0 => self.wait_for_leavers(joined == Ok(true)),
            rank => {
                // Rank 0 does not wait for long.
                let _ = self.store.set(&left_key(rank), b"");
            }
        }
    }

    /// Publishes nothing in a rendezvous that turns out to be another job's.
    pub(super) fn abandon(&self) {
        self.foreign.set(true);
    }

    /// Waits for the ranks that have joined; for all ranks where none joins before this one has.
    fn wait_for_leavers(&self, has_joined: bool) {
        let until = Instant::now()
            + if has_joined {
                FAILURE_LINGER
            } else {
                EARLY_FAILURE_LINGER
            };
        let joined = |rank: &u32| self.store.has(&Topic::Address.key(*rank)).unwrap_or(false);
        let all = self.size > CHECKED_RANKS_MAX || !has_joined;
        let others = (1..self.size).filter(|rank| all || joined(rank));
        // Some stores take long to report that a rank has not joined.
        let others = others.take_while(|_| Instant::now() < until);
        let keys: Vec<String> = others.map(left_key).collect();
        // A rank that does not leave in time may have died.
        let _ = self.store.multi_get(&keys, until, self.cancel);
    }

    /// Publishes the reason that this rank fails, in place of the values that the others wait for.
    fn publish_failure(&self, error: &Error) -> Result<(), Error> {
        let why = error.to_string();
        if self.open.get() < Topic::ALL.len() {
            let (rank, why) = (self.rank, why.clone());
            // Another rank's failure may be there already.
            let _ = self.set(FAILED_KEY, &MeetingFailure { rank, why });
        }
        if self.rank == 0 {
            // In place of the value that others wait for first; rejected if they have that already.
            let _ = self.set(&Topic::Address.key(0), &RankReport::Failed(why.clone()));
        }
        for topic in Topic::ALL.into_iter().skip(self.open.get()) {
            match self.rank {
                0 => self.answer(
                    topic,
                    &TopicAnswer::Failed {
                        rank: 0,
                        why: why.clone(),
                    },
                ),
                rank => self.set(&topic.key(rank), &RankReport::Failed(why.clone())),
            }?;
        }
        Ok(())
    }

    pub(super) fn publish(&self, topic: Topic, mine: Vec<u8>) -> Result<(), Error> {
        if self.rank != 0 {
            self.open.set(topic as usize + 1);
        }
        self.set(&topic.key(self.rank), &RankReport::Value(mine))
    }

    /// Rank 0's value, before it has read those of the others.
    pub(super) fn first(&self, topic: Topic) -> Result<Vec<u8>, Error> {
        match self.read(topic, &topic.key(0))? {
            RankReport::Value(value) => Ok(value),
            RankReport::Failed(why) => Err(failed_on(0, &why)),
        }
    }

    /// The value that another process has published under this rank's number, where `mine` could
    /// not be published.
    pub(super) fn published_by_other(&self, topic: Topic, mine: &[u8]) -> Option<Vec<u8>> {
        let key = topic.key(self.rank);
        let bytes = self
            .store
            .get(&key, Instant::now() + CHECK_INTERVAL, self.cancel)
            .ok()?;
        match postcard::from_bytes(&bytes).ok()? {
            RankReport::Value(other) if other != mine => Some(other),
            RankReport::Value(_) | RankReport::Failed(_) => None,
        }
    }

    /// Reads rank 0's answer.
    pub(super) fn read_answer(&self, topic: Topic) -> Result<Vec<u8>, Error> {
        let answer = self.read(topic, &topic.answer_key())?;
        if !matches!(answer, TopicAnswer::Value(_)) {
            self.settle_all();
        }
        match answer {
            TopicAnswer::Value(value) => Ok(value),
            TopicAnswer::Failed { rank, why } => Err(failed_on(rank, &why)),
            TopicAnswer::Refused(error) => Err(error),
        }
    }

    /// Rank 0's part: reads the values of all ranks, and publishes the answer.
    pub(super) fn answer_all(
        &self,
        topic: Topic,
        answer: impl FnOnce(&[Vec<u8>]) -> Result<Vec<u8>, Box<MeetingRefusal>>,
    ) -> Result<Vec<u8>, Error> {
        let values = self.gather(topic)?;
        let (said, result) = match answer(&values) {
            Ok(answer) => (TopicAnswer::Value(answer.clone()), Ok(answer)),
            Err(refusal) => (TopicAnswer::Refused(refusal.others), Err(refusal.here)),
        };
        self.answer(topic, &said)?;
        result
    }

    fn gather(&self, topic: Topic) -> Result<Vec<Vec<u8>>, Error> {
        let started = Instant::now();
        let keys: Vec<String> = (0..self.size).map(|rank| topic.key(rank)).collect();
        let published = self.wait(topic, &keys);
        if let Err(Error::Timeout { .. }) = published {
            let missing = self.missing(topic, started.elapsed());
            self.answer(topic, &TopicAnswer::Refused(missing.reported_by(0)))?;
            return Err(missing);
        }
        let mut values = Vec::with_capacity(keys.len());
        for (rank, bytes) in (0..).zip(published?) {
            match postcard::from_bytes(&bytes).map_err(|_| unreadable(rank))? {
                RankReport::Value(value) => values.push(value),
                RankReport::Failed(why) => {
                    let error = failed_on(rank, &why);
                    self.answer(topic, &TopicAnswer::Failed { rank, why })?;
                    return Err(error);
                }
            }
        }
        Ok(values)
    }

    /// Reads a value of rank 0.
    fn read<T: DeserializeOwned>(&self, topic: Topic, key: &str) -> Result<T, Error> {
        let started = Instant::now();
        let bytes = self.wait(topic, &[key.into()]);
        let bytes = bytes.map_err(|error| match error {
            Error::Timeout { .. } => self.missing(topic, started.elapsed()),
            error => error,
        })?;
        let value = bytes.first().map(|bytes| postcard::from_bytes(bytes));
        value.and_then(Result::ok).ok_or_else(|| unreadable(0))
    }

    /// The values of these keys, once they are set. Ends early if any rank fails meanwhile: the
    /// missing ranks may be waiting for it, too.
    fn wait(&self, topic: Topic, keys: &[String]) -> Result<Vec<Vec<u8>>, Error> {
        let pause = match self.rank {
            0 => CHECK_INTERVAL,
            _ => CHECK_INTERVAL.max(CHECK_INTERVAL_PER_RANK * self.size),
        };
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_MAX) {
            let mut got = loop {
                let until = self.deadline.min(Instant::now() + pause);
                match self.store.multi_get(some, until, self.cancel) {
                    Err(late @ Error::Timeout { .. }) => {
                        self.check_failure(topic)?;
                        if Instant::now() >= self.deadline {
                            return Err(late);
                        }
                    }
                    values => break values?,
                }
            };
            values.append(&mut got);
        }
        Ok(values)
    }

    /// Fails if a rank has published its failure.
    fn check_failure(&self, topic: Topic) -> Result<(), Error> {
        if !self.store.has(FAILED_KEY)? {
            return Ok(());
        }
        let bytes = (self.store).get(FAILED_KEY, Instant::now() + CHECK_INTERVAL, self.cancel)?;
        let MeetingFailure { rank, why } =
            postcard::from_bytes(&bytes).map_err(|_| unreadable(self.rank))?;
        let error = failed_on(rank, &why);
        match self.rank {
            0 => self.answer(topic, &TopicAnswer::Failed { rank, why })?,
            _ => self.settle_all(),
        }
        Err(error)
    }

    fn answer(&self, topic: Topic, answer: &TopicAnswer) -> Result<(), Error> {
        self.open.set(topic as usize + 1);
        if !matches!(answer, TopicAnswer::Value(_)) {
            self.settle_all();
        }
        self.set(&topic.answer_key(), answer)
    }

    /// Marks the exchange as settled.
    fn settle_all(&self) {
        self.open.set(Topic::ALL.len());
    }

    fn set(&self, key: &str, value: &impl Serialize) -> Result<(), Error> {
        self.store.set(key, &to_bytes(value))
    }

    fn missing(&self, topic: Topic, after: Duration) -> Error {
        let checks = self.rank == 0 || self.size <= CHECKED_RANKS_MAX;
        // A store that is gone knows no rank. No rank publishes anything before rank 0 has.
        let size = match self.open.get() {
            0 if self.rank != 0 => 1,
            _ => self.size,
        };
        let published = (0..size)
            .filter(|_| checks)
            .map_while(|rank| Some((rank, self.store.has(&topic.key(rank)).ok()?)));
        let missing: Vec<u32> = published
            .filter(|(_, published)| !published)
            .map(|(rank, _)| rank)
            .collect();
        let awaited = match (&missing[..], self.rank) {
            ([], 1..) => "rank 0, which answers when all ranks have reported,".into(),
            _ => name_ranks(&missing),
        };
        let late = Error::Timeout {
            operation: "rendezvous".into(),
            waiting_for: format!("{awaited} of {}", self.size),
            after,
        };
        match self.store.refusals() {
            Some(refused) => late.with_note(&refused),
            None => late,
        }
    }
}

/// The key that a rank sets when it leaves a failed rendezvous.
fn left_key(rank: u32) -> String {
    format!("left/{rank}")
}

fn failed_on(rank: u32, why: &str) -> Error {
    Error::Aborted {
        reason: format!("the rendezvous failed on rank {rank}: {why}"),
    }
}

pub(super) fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("writing to memory does not fail")
}

pub(super) fn unreadable(rank: u32) -> Error {
    Error::Config(format!(
        "the value that rank {rank} published at the rendezvous is malformed. Does it run the same version of weft?"
    ))
}

/// "rank 2", "ranks 2, 5", "ranks 2, 5, 6 ... 900 (600 in all)".
pub(super) fn name_ranks(ranks: &[u32]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    match ranks {
        [] => "the last of the ranks".into(),
        [one] => format!("rank {one}"),
        [.., last] if ranks.len() > SHOWN => {
            format!(
                "ranks {} ... {last} ({} in all)",
                shown.join(", "),
                ranks.len()
            )
        }
        _ => format!("ranks {}", shown.join(", ")),
    }
}
