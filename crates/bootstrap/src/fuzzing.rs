//! Readers of what comes from the store, or to it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rendezvous::roster::{RankHello, Roster};
use super::store_tcp;
use super::store_tcp::{StoreReply, StoreRequest};

/// What a rank has published first.
pub fn rank_hello(bytes: &[u8]) {
    read_as::<RankHello>(bytes);
}

/// The list that rank 0 has made of it.
pub fn roster(bytes: &[u8]) {
    read_as::<Roster>(bytes);
    for size in 0..4 {
        let _ = Roster::read(bytes, size).map(|roster| roster.members().count());
    }
}

/// What comes to an end of a store connection of a job with certificates.
pub fn store_tls(bytes: &[u8]) {
    store_tcp::store_tls(bytes);
}

/// What a client sends to the store.
pub fn store_request(bytes: &[u8]) {
    read_as::<StoreRequest>(bytes);
}

/// What the store answers.
pub fn store_reply(bytes: &[u8]) {
    read_as::<StoreReply>(bytes);
}

/// What can be read comes back the same from what it is written as.
fn read_as<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let write = |value: &T| postcard::to_stdvec(value).expect("writing to memory does not fail");
    if let Ok(value) = postcard::from_bytes::<T>(bytes) {
        let written = write(&value);
        let again = postcard::from_bytes(&written).expect("what was written can be read");
        assert_eq!(write(&again), written);
    }
}
