//! What ranks tell each other through the store: on every topic each rank sets one key, rank 0
//! reads them all at once and sets one answer, and every other rank reads that.
//!
//! So a rank sets and reads as many keys as there are topics, however many ranks there are, and
//! those of rank 0 go in few requests. See benches/runs/2026-11-23-rendezvous-at-scale.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_call::Error;

use super::super::store::Store;
use super::super::store_tcp::KEYS_MAX;

/// In larger groups only rank 0 looks for the ranks that are missing: each rank would ask for each.
const LOOKS_MAX: u32 = 1024;

/// How often a rank that waits for others looks whether one has failed; in large groups ranks other
/// than 0 look once in so long for each rank.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_PER_RANK: Duration = Duration::from_millis(1);

/// How long rank 0 stays, when the meeting has failed, for ranks that have not heard of it.
const FAREWELL: Duration = Duration::from_millis(500);
/// The same if it fails before it has come to the meeting: others may be on their way.
const EARLY_FAREWELL: Duration = Duration::from_secs(5);

/// The key that a rank sets when it fails, for those who wait for any other.
const FAILED_KEY: &str = "failed";

/// What ranks tell, in this order. Not every meeting has all of them.
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

    /// The key under which a rank tells.
    fn key(self, rank: u32) -> String {
        format!("{}/{rank}", self.name())
    }

    /// The key under which rank 0 answers.
    fn answer_key(self) -> String {
        format!("{}/all", self.name())
    }
}

/// What a rank tells on a topic.
#[derive(Serialize, Deserialize)]
enum Told {
    Value(Vec<u8>),
    /// It cannot go on, and why.
    Failed(String),
}

/// What rank 0 makes of it.
#[derive(Serialize, Deserialize)]
enum Answer {
    Value(Vec<u8>),
    /// A rank cannot go on, and why.
    Failed {
        rank: u32,
        why: String,
    },
    /// Nobody can go on.
    Refused(Error),
}

/// Why a meeting has failed: the value of [`FAILED_KEY`].
#[derive(Serialize, Deserialize)]
struct Failure {
    rank: u32,
    why: String,
}

/// Why rank 0 has no answer.
pub(super) struct Refusal {
    /// For this rank.
    pub(super) here: Error,
    /// For the others.
    pub(super) told: Error,
}

impl From<Error> for Box<Refusal> {
    fn from(error: Error) -> Self {
        Box::new(Refusal {
            here: error.clone(),
            told: error,
        })
    }
}

/// One rank's side of the conversation.
pub(super) struct Exchange<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) deadline: Instant,
    pub(super) cancel: &'a AtomicBool,
    /// The first topic of which the others have not heard all that they will.
    open: Cell<usize>,
    /// Whether the meeting is another job's: nothing is said there.
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

    /// Tells this rank's value, and returns rank 0's answer, which is made from all values in the
    /// order of the ranks.
    pub(super) fn settle(
        &self,
        topic: Topic,
        mine: Vec<u8>,
        answer: impl FnOnce(&[Vec<u8>]) -> Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        self.tell(topic, mine)?;
        match self.rank {
            0 => self.answer_all(topic, |told| Ok(answer(told))),
            _ => self.hear(topic),
        }
    }

    /// Ends a meeting that has failed: no rank waits for this one. Rank 0, whose process may serve
    /// the store and end for this error, stays until those who came have heard.
    pub(super) fn call_off(&self, error: &Error) {
        let came = self.store.has(&Topic::Address.key(self.rank));
        // A store that fails has failed for everybody.
        if self.foreign.get() || came.is_err() || self.publish_failure(error).is_err() {
            return;
        }
        match self.rank {
            0 => self.wait_for_leavers(came == Ok(true)),
            rank => {
                // Rank 0 does not wait for long.
                let _ = self.store.set(&left_key(rank), b"");
            }
        }
    }

    /// Takes no part in a meeting that turns out to be another job's.
    pub(super) fn turn_away(&self) {
        self.foreign.set(true);
    }

    /// Waits for those who came to the meeting; for all where nobody comes before this rank has.
    fn wait_for_leavers(&self, has_come: bool) {
        let until = Instant::now() + if has_come { FAREWELL } else { EARLY_FAREWELL };
        let came = |rank: &u32| self.store.has(&Topic::Address.key(*rank)).unwrap_or(false);
        let all = self.size > LOOKS_MAX || !has_come;
        let others = (1..self.size).filter(|rank| all || came(rank));
        // Some stores take long to say that a rank has not come.
        let others = others.take_while(|_| Instant::now() < until);
        let keys: Vec<String> = others.map(left_key).collect();
        // Who does not leave in time may have died.
        let _ = self.store.multi_get(&keys, until, self.cancel);
    }

    /// Publishes why this rank fails, in place of what the others wait for.
    fn publish_failure(&self, error: &Error) -> Result<(), Error> {
        let why = error.to_string();
        if self.open.get() < Topic::ALL.len() {
            let (rank, why) = (self.rank, why.clone());
            // Another rank's failure may be there already.
            let _ = self.say(FAILED_KEY, &Failure { rank, why });
        }
        if self.rank == 0 {
            // In place of what others wait for first; refused if they have that already.
            let _ = self.say(&Topic::Address.key(0), &Told::Failed(why.clone()));
        }
        for topic in Topic::ALL.into_iter().skip(self.open.get()) {
            match self.rank {
                0 => self.answer(
                    topic,
                    &Answer::Failed {
                        rank: 0,
                        why: why.clone(),
                    },
                ),
                rank => self.say(&topic.key(rank), &Told::Failed(why.clone())),
            }?;
        }
        Ok(())
    }

    pub(super) fn tell(&self, topic: Topic, mine: Vec<u8>) -> Result<(), Error> {
        if self.rank != 0 {
            self.open.set(topic as usize + 1);
        }
        self.say(&topic.key(self.rank), &Told::Value(mine))
    }

    /// What rank 0 has told, before it has heard from the others.
    pub(super) fn first(&self, topic: Topic) -> Result<Vec<u8>, Error> {
        match self.read(topic, &topic.key(0))? {
            Told::Value(value) => Ok(value),
            Told::Failed(why) => Err(failed_on(0, &why)),
        }
    }

    /// What another process has told under this rank's number, where `mine` could not be told.
    pub(super) fn told_by_other(&self, topic: Topic, mine: &[u8]) -> Option<Vec<u8>> {
        let key = topic.key(self.rank);
        let bytes = self
            .store
            .get(&key, Instant::now() + LOOK, self.cancel)
            .ok()?;
        match postcard::from_bytes(&bytes).ok()? {
            Told::Value(other) if other != mine => Some(other),
            Told::Value(_) | Told::Failed(_) => None,
        }
    }

    /// Rank 0's answer.
    pub(super) fn hear(&self, topic: Topic) -> Result<Vec<u8>, Error> {
        let answer = self.read(topic, &topic.answer_key())?;
        if !matches!(answer, Answer::Value(_)) {
            self.all_know();
        }
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Failed { rank, why } => Err(failed_on(rank, &why)),
            Answer::Refused(error) => Err(error),
        }
    }

    /// Rank 0's part: hears all ranks, and answers them.
    pub(super) fn answer_all(
        &self,
        topic: Topic,
        answer: impl FnOnce(&[Vec<u8>]) -> Result<Vec<u8>, Box<Refusal>>,
    ) -> Result<Vec<u8>, Error> {
        let values = self.gather(topic)?;
        let (said, result) = match answer(&values) {
            Ok(answer) => (Answer::Value(answer.clone()), Ok(answer)),
            Err(refusal) => (Answer::Refused(refusal.told), Err(refusal.here)),
        };
        self.answer(topic, &said)?;
        result
    }

    fn gather(&self, topic: Topic) -> Result<Vec<Vec<u8>>, Error> {
        let started = Instant::now();
        let keys: Vec<String> = (0..self.size).map(|rank| topic.key(rank)).collect();
        let told = self.wait(topic, &keys);
        if let Err(Error::Timeout { .. }) = told {
            let missing = self.missing(topic, started.elapsed());
            self.answer(topic, &Answer::Refused(missing.reported_by(0)))?;
            return Err(missing);
        }
        let mut values = Vec::with_capacity(keys.len());
        for (rank, bytes) in (0..).zip(told?) {
            match postcard::from_bytes(&bytes).map_err(|_| unreadable(rank))? {
                Told::Value(value) => values.push(value),
                Told::Failed(why) => {
                    let error = failed_on(rank, &why);
                    self.answer(topic, &Answer::Failed { rank, why })?;
                    return Err(error);
                }
            }
        }
        Ok(values)
    }

    /// What rank 0 has set.
    fn read<T: DeserializeOwned>(&self, topic: Topic, key: &str) -> Result<T, Error> {
        let started = Instant::now();
        let bytes = self.wait(topic, &[key.into()]);
        let bytes = bytes.map_err(|error| match error {
            Error::Timeout { .. } => self.missing(topic, started.elapsed()),
            error => error,
        })?;
        let told = bytes.first().map(|bytes| postcard::from_bytes(bytes));
        told.and_then(Result::ok).ok_or_else(|| unreadable(0))
    }

    /// The values of these keys, once they are set. Ends early if a rank fails meanwhile, whoever
    /// that is: those who are missing may be waiting for it, too.
    fn wait(&self, topic: Topic, keys: &[String]) -> Result<Vec<Vec<u8>>, Error> {
        let pause = match self.rank {
            0 => LOOK,
            _ => LOOK.max(LOOK_PER_RANK * self.size),
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
                    told => break told?,
                }
            };
            values.append(&mut got);
        }
        Ok(values)
    }

    /// Fails if a rank has said that it cannot go on.
    fn check_failure(&self, topic: Topic) -> Result<(), Error> {
        if !self.store.has(FAILED_KEY)? {
            return Ok(());
        }
        let bytes = (self.store).get(FAILED_KEY, Instant::now() + LOOK, self.cancel)?;
        let Failure { rank, why } =
            postcard::from_bytes(&bytes).map_err(|_| unreadable(self.rank))?;
        let error = failed_on(rank, &why);
        match self.rank {
            0 => self.answer(topic, &Answer::Failed { rank, why })?,
            _ => self.all_know(),
        }
        Err(error)
    }

    fn answer(&self, topic: Topic, answer: &Answer) -> Result<(), Error> {
        self.open.set(topic as usize + 1);
        if !matches!(answer, Answer::Value(_)) {
            self.all_know();
        }
        self.say(&topic.answer_key(), answer)
    }

    /// There is no more to be told.
    fn all_know(&self) {
        self.open.set(Topic::ALL.len());
    }

    fn say(&self, key: &str, what: &impl Serialize) -> Result<(), Error> {
        self.store.set(key, &to_bytes(what))
    }

    fn missing(&self, topic: Topic, after: Duration) -> Error {
        let looks = self.rank == 0 || self.size <= LOOKS_MAX;
        // A store that is gone knows of nobody.
        // Nobody tells anything before rank 0 has.
        let size = match self.open.get() {
            0 if self.rank != 0 => 1,
            _ => self.size,
        };
        let told = (0..size)
            .filter(|_| looks)
            .map_while(|rank| Some((rank, self.store.has(&topic.key(rank)).ok()?)));
        let missing: Vec<u32> = told
            .filter(|(_, told)| !told)
            .map(|(rank, _)| rank)
            .collect();
        let whom = match (&missing[..], self.rank) {
            ([], 1..) => "rank 0, which answers when it has heard from all,".into(),
            _ => name_ranks(&missing),
        };
        let late = Error::Timeout {
            operation: "rendezvous".into(),
            waiting_for: format!("{whom} of {}", self.size),
            after,
        };
        match self.store.refusals() {
            Some(refused) => late.with_note(&refused),
            None => late,
        }
    }
}

/// The key that a rank sets when it leaves a meeting that has failed.
fn left_key(rank: u32) -> String {
    format!("left/{rank}")
}

fn failed_on(rank: u32, why: &str) -> Error {
    Error::Aborted {
        reason: format!("the rendezvous failed on rank {rank}: {why}"),
    }
}

pub(super) fn to_bytes(what: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(what).expect("writing to memory does not fail")
}

pub(super) fn unreadable(rank: u32) -> Error {
    Error::Config(format!(
        "what rank {rank} published at the rendezvous cannot be read. Does it run the same version of weft?"
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
