//! Parsers of data from the store, or for it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rendezvous::roster::{RankHello, Roster};
use super::store_tcp;
use super::store_tcp::{StoreReply, StoreRequest};

/// A rank's hello.
pub fn rank_hello(bytes: &[u8]) {
    read_as::<RankHello>(bytes);
}

/// Rank 0's list of the hellos.
pub fn roster(bytes: &[u8]) {
    read_as::<Roster>(bytes);
    for size in 0..4 {
        let _ = Roster::read(bytes, size).map(|roster| roster.members().count());
    }
}

/// Data that arrives at an end of a store connection of a job with certificates.
pub fn store_tls(bytes: &[u8]) {
    store_tcp::store_tls(bytes);
}

/// A client's request to the store.
pub fn store_request(bytes: &[u8]) {
    read_as::<StoreRequest>(bytes);
}

/// The store's reply.
pub fn store_reply(bytes: &[u8]) {
    read_as::<StoreReply>(bytes);
}

/// A parsed value must be the same after it is written and parsed again.
fn read_as<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let write = |value: &T| postcard::to_stdvec(value).expect("writing to memory does not fail");
    if let Ok(value) = postcard::from_bytes::<T>(bytes) {
        let written = write(&value);
        let again = postcard::from_bytes(&written).expect("written values can be parsed");
        assert_eq!(write(&again), written);
    }
}
