//! Wire protocol between client and server of the store.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_transport::fork::Registration;

/// Both ends begin with this.
const GREETING: [u8; 12] = *b"weft-store-1";
/// The longest request or reply.
const BODY_BYTES_MAX: usize = 64 << 20;

#[derive(Serialize, Deserialize, Debug)]
pub(in crate::bootstrap) enum StoreRequest {
    Set { key: String, value: Vec<u8> },
    Has { key: String },
    Get { keys: Vec<String>, wait_millis: u32 },
}

#[derive(Serialize, Deserialize, Debug)]
pub(in crate::bootstrap) enum StoreReply {
    Done,
    Has(bool),
    Values(Vec<Vec<u8>>),
    /// The first key that was not set in time.
    Missing(String),
    /// A sign of life; the reply is still to come.
    Waiting,
}

/// Why a conversation ended.
#[derive(Debug)]
pub(super) enum StoreFailure {
    Cancelled,
    Ended,
    Silent,
    Nonsense,
    Io(io::Error),
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreFailure::Cancelled => write!(f, "was not waited for any longer"),
            StoreFailure::Ended => write!(f, "closed the connection"),
            StoreFailure::Silent => write!(f, "does not answer"),
            StoreFailure::Nonsense => write!(f, "is not a store of this version of weft"),
            StoreFailure::Io(error) => write!(f, "cannot be reached: {error}"),
        }
    }
}

/// A connection between client and server. A request or reply is its length (4 bytes,
/// little-endian) and its body.
pub(super) struct StoreConnection {
    // Above the stream: it must be dropped first.
    _registration: Registration,
    stream: TcpStream,
}

impl StoreConnection {
    /// `poll`: how often a blocking call looks at its deadline and whether it is cancelled; only
    /// when something happens if `None`.
    pub(super) fn new(stream: TcpStream, poll: Option<Duration>) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(poll)?;
        stream.set_write_timeout(Some(poll.unwrap_or(Duration::from_secs(1))))?;
        Ok(Self {
            _registration: Registration::new(stream.as_fd())?,
            stream,
        })
    }

    /// Makes sure that both ends speak this protocol.
    pub(super) fn greet(&self, deadline: Instant, cancel: &AtomicBool) -> Result<(), StoreFailure> {
        self.write(&GREETING, deadline, cancel)?;
        let mut theirs = [0; GREETING.len()];
        self.read(&mut theirs, deadline, cancel)?;
        if theirs != GREETING {
            return Err(StoreFailure::Nonsense);
        }
        Ok(())
    }

    pub(super) fn send(
        &self,
        what: &impl Serialize,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), StoreFailure> {
        let mut bytes = vec![0; 4];
        bytes.append(&mut postcard::to_stdvec(what).map_err(|_| StoreFailure::Nonsense)?);
        let body = bytes.len() - 4;
        if body > BODY_BYTES_MAX {
            return Err(StoreFailure::Nonsense);
        }
        bytes[..4].copy_from_slice(&(body as u32).to_le_bytes());
        self.write(&bytes, deadline, cancel)
    }

    pub(super) fn receive<T: DeserializeOwned>(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<T, StoreFailure> {
        const PORTION: usize = 1 << 20;
        let mut length = [0; 4];
        self.read(&mut length, deadline, cancel)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > BODY_BYTES_MAX {
            return Err(StoreFailure::Nonsense);
        }
        // Memory is taken as bytes come, not as they are announced.
        let mut body = Vec::new();
        while body.len() < length {
            let filled = body.len();
            body.resize(length.min(filled + PORTION), 0);
            self.read(&mut body[filled..], deadline, cancel)?;
        }
        postcard::from_bytes(&body).map_err(|_| StoreFailure::Nonsense)
    }

    /// Whoever waits on this connection, at either end, is told that it is over.
    pub(super) fn end(&self) {
        // A connection that is down already needs no shutdown.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn read(
        &self,
        mut buffer: &mut [u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), StoreFailure> {
        while !buffer.is_empty() {
            match retry((&self.stream).read(buffer), deadline, cancel)? {
                Some(0) => return Err(StoreFailure::Ended),
                Some(bytes) => buffer = &mut buffer[bytes..],
                None => {}
            }
        }
        Ok(())
    }

    fn write(
        &self,
        mut bytes: &[u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), StoreFailure> {
        while !bytes.is_empty() {
            if let Some(written) = retry((&self.stream).write(bytes), deadline, cancel)? {
                bytes = &bytes[written..];
            }
        }
        Ok(())
    }
}

/// The count of bytes, or `None` if there were none and it is to be tried again.
fn retry(
    result: io::Result<usize>,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<Option<usize>, StoreFailure> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.kind() {
            WouldBlock | TimedOut | Interrupted if cancel.load(Ordering::Relaxed) => {
                Err(StoreFailure::Cancelled)
            }
            WouldBlock | TimedOut | Interrupted if Instant::now() >= deadline => {
                Err(StoreFailure::Silent)
            }
            WouldBlock | TimedOut | Interrupted => Ok(None),
            BrokenPipe | ConnectionReset => Err(StoreFailure::Ended),
            _ => Err(StoreFailure::Io(error)),
        },
    }
}
