//! A malicious peer with a link, for fuzzing.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_bootstrap::{Endpoint, EndpointOptions, MemoryStore, TransportChoice};
use weft_channel::ControlMessage;

use super::group::{Group, GroupOptions, engine_of, meet};
use super::symmetric::Symmetric;
use crate::progress::{GroupName, ReceivedMessage};

/// The group's identity, which inputs can name. Other identities are of groups not made yet.
const GROUP: u64 = 1;
const TIMEOUT: Duration = Duration::from_secs(20);
const MEMORY: u64 = 4096;
const SIGNALS: u32 = 4;

thread_local! {
    /// Recreated after an input has broken it.
    static PAIR: RefCell<Option<[FuzzedRank; 2]>> = const { RefCell::new(None) };
}

/// A rank, with memory that the other may write and read.
struct FuzzedRank {
    group: Arc<Group>,
    _memory: Symmetric,
}

/// Sends messages of rank 1 to rank 0 of a group of two, each preceded by its length in a byte.
/// Rank 0 must survive them, and must be able to close the group.
///
/// # Panics
///
/// If it does not.
pub fn messages_of_a_peer(bytes: &[u8]) {
    PAIR.with_borrow_mut(|pair| {
        let [victim, peer] = pair.get_or_insert_with(make_pair);
        let (victim, peer) = (&victim.group, &peer.group);
        let from = peer.engine.endpoint().id();
        let mut rest = bytes;
        while let Some((len, behind)) = rest.split_first() {
            let (message, behind) = behind.split_at(behind.len().min((*len).into()));
            rest = behind;
            let Some((message, payload)) = ControlMessage::decode(message) else {
                continue;
            };
            victim.engine.with(|state, finished| {
                let payload = Cow::Borrowed(payload);
                state.on_message(
                    ReceivedMessage {
                        from,
                        message,
                        payload,
                    },
                    finished,
                );
                state.pass(finished);
            });
        }
        if victim.broken().is_some() || peer.broken().is_some() {
            victim.close();
            *pair = None;
        }
    });
}

fn make_pair() -> [FuzzedRank; 2] {
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let store = &store;
            scope.spawn(move || make_rank(store, rank))
        });
        ranks.map(|rank| rank.join().expect("both ranks join"))
    })
}

/// As [`Group::create`], with a known identity.
fn make_rank(store: &MemoryStore, rank: u32) -> FuzzedRank {
    let endpoint = Endpoint::new(EndpointOptions {
        transport: TransportChoice::Loopback,
        pool_bytes: 16 << 20,
        ..EndpointOptions::default()
    });
    let endpoint = endpoint.expect("an endpoint within this process");
    let engine = engine_of(&endpoint).expect("a progress thread");
    let (deadline, never) = (Instant::now() + TIMEOUT, AtomicBool::new(false));
    let options = GroupOptions {
        timeout: TIMEOUT,
        ..GroupOptions::default()
    };
    let terms = options.terms.clone();
    let meeting = meet(&endpoint, store, rank, 2, terms, deadline, &never);
    let mut meeting = meeting.expect("both ranks join");
    meeting.group_id = GROUP;
    let name = GroupName::met("fuzzed", None);
    let group = Group::join(
        engine,
        meeting,
        (GROUP, name),
        rank,
        options,
        deadline,
        &never,
    );
    let group = group.expect("memory for a group");
    group
        .wait_for_neighbours(deadline, &never)
        .expect("both ranks join");
    let memory = group.symmetric_with_signals(MEMORY, SIGNALS, "fuzzed");
    FuzzedRank {
        _memory: memory.expect("memory for a piece"),
        group,
    }
}
