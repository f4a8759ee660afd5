//! What client and server of the store say to each other, and how much of it.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// The longest key.
pub(super) const KEY_BYTES_MAX: usize = 512;
/// The most keys that one request names.
pub(crate) const KEYS_MAX: usize = 1024;
/// The longest value.
pub(super) const VALUE_BYTES_MAX: usize = 16 << 20;
/// The most bytes of values in one reply.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 20;
/// The longest message but one that carries a value to be set.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest message: a value to be set, with its key.
pub(super) const SET_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX + 64;

#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum StoreRequest {
    Set { key: String, value: Vec<u8> },
    Has { key: String },
    Get { keys: Vec<String>, wait_millis: u32 },
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum StoreReply {
    Done,
    Has(bool),
    /// So many values follow, each a message of its own that is nothing but the value.
    Values(u32),
    /// The first key that was not set in time.
    Missing(String),
    /// A sign of life; the reply is still to come.
    Waiting,
    /// What was asked for is not allowed.
    Refused(String),
}

impl StoreRequest {
    /// The request of a message. One that is long and not for setting a value is not even decoded.
    pub(super) fn decode(body: &[u8]) -> Result<Self, Nonsense> {
        /// How the encoding of [`StoreRequest::Set`] begins.
        const SET: u8 = 0;
        if body.len() > BODY_BYTES_MAX && body.first() != Some(&SET) {
            return Err(Nonsense);
        }
        postcard::from_bytes(body).map_err(|_| Nonsense)
    }

    /// What is wrong with it, if anything is.
    pub(super) fn refusal(&self) -> Option<String> {
        let keys = match self {
            StoreRequest::Set { key, value } => {
                if value.len() > VALUE_BYTES_MAX {
                    let bytes = value.len();
                    return Some(format!(
                        "the value of {:?} has {bytes} bytes: at most {VALUE_BYTES_MAX} are allowed",
                        shortened(key)
                    ));
                }
                std::slice::from_ref(key)
            }
            StoreRequest::Has { key } => std::slice::from_ref(key),
            StoreRequest::Get { keys, .. } => keys,
        };
        if keys.len() > KEYS_MAX {
            let count = keys.len();
            return Some(format!(
                "{count} keys at once: at most {KEYS_MAX} are allowed"
            ));
        }
        let long = keys.iter().find(|key| key.len() > KEY_BYTES_MAX)?;
        Some(format!(
            "a key of {} bytes, {:?}...: at most {KEY_BYTES_MAX} are allowed",
            long.len(),
            shortened(long)
        ))
    }
}

fn shortened(key: &str) -> String {
    key.chars().take(40).collect()
}

/// A message: its length (4 bytes, little-endian) and its body.
pub(super) fn message(what: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(what).expect("writing to memory does not fail");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// What came is not what this version of weft says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nonsense;

/// Why a conversation ended.
#[derive(Debug)]
pub(super) enum StoreFailure {
    Cancelled,
    Ended,
    Silent,
    Nonsense,
    /// The other end did not show that it belongs to the job, and how that was seen.
    Stranger(String),
    Io(io::Error),
}

impl From<Nonsense> for StoreFailure {
    fn from(Nonsense: Nonsense) -> Self {
        StoreFailure::Nonsense
    }
}

impl From<io::Error> for StoreFailure {
    fn from(error: io::Error) -> Self {
        StoreFailure::Io(error)
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreFailure::Cancelled => write!(f, "was not waited for any longer"),
            StoreFailure::Ended => write!(f, "closed the connection"),
            StoreFailure::Silent => write!(f, "does not answer"),
            StoreFailure::Nonsense => write!(f, "is not a store of this version of weft"),
            StoreFailure::Stranger(why) => write!(f, "{why}"),
            StoreFailure::Io(error) => write!(f, "cannot be reached: {error}"),
        }
    }
}
