//! The messages between client and server of the store, and their limits.

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
/// The longest message except one that carries a value to be set.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest message: a value to be set, with its key.
pub(super) const SET_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX + 64;

#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum StoreRequest {
    Set {
        key: String,
        value: Vec<u8>,
    },
    Has {
        key: String,
    },
    Get {
        keys: Vec<String>,
        wait_millis: u32,
    },
    /// The job's status: the reply is one value, and the connection ends.
    Status,
    /// Which server this is: the first request on every connection.
    Identity,
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum StoreReply {
    Done,
    Has(bool),
    /// This many values follow, each in a message of its own that holds only the value.
    Values(u32),
    /// The first key that was not set in time.
    Missing(String),
    /// A sign of life; the reply is still to follow.
    Waiting,
    /// The request is not allowed.
    Refused(String),
    /// A number that no other server has.
    Identity(u64),
}

impl StoreRequest {
    /// Decodes a request. A message that is long and does not set a value is not even decoded.
    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        /// The first byte of an encoded [`StoreRequest::Set`].
        const SET: u8 = 0;
        if body.len() > BODY_BYTES_MAX && body.first() != Some(&SET) {
            return Err(Malformed);
        }
        postcard::from_bytes(body).map_err(|_| Malformed)
    }

    /// The reason that it is not allowed, if any.
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
            StoreRequest::Status | StoreRequest::Identity => return None,
        };
        if keys.len() > KEYS_MAX {
            let count = keys.len();
            return Some(format!(
                "{count} keys in one request: at most {KEYS_MAX} are allowed"
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
pub(super) fn message(value: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_stdvec(value).expect("writing to memory does not fail");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// The received bytes are not a message of this version of weft.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The reason that a connection ended.
#[derive(Debug)]
pub(super) enum StoreFailure {
    Cancelled,
    Ended,
    Silent,
    Malformed,
    /// The other end did not prove that it belongs to the job, for this reason.
    Stranger(String),
    Io(io::Error),
}

impl From<Malformed> for StoreFailure {
    fn from(Malformed: Malformed) -> Self {
        StoreFailure::Malformed
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
            StoreFailure::Cancelled => write!(f, "did not answer before the call was cancelled"),
            StoreFailure::Ended => write!(f, "closed the connection"),
            StoreFailure::Silent => write!(f, "does not answer"),
            StoreFailure::Malformed => write!(f, "is not a store of this version of weft"),
            StoreFailure::Stranger(why) => write!(f, "{why}"),
            StoreFailure::Io(error) => write!(f, "cannot be reached: {error}"),
        }
    }
}
