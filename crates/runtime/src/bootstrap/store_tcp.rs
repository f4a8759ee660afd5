//! A store over TCP: a server in the process of rank 0, clients everywhere.

mod protocol;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use protocol::{StoreConnection, StoreFailure};
pub(super) use protocol::{StoreReply, StoreRequest};
use weft_transport::LinkError;
use weft_transport::fork::{self, Registration};

use super::store::{CANCEL_POLL, MemoryStore, Store, key_timeout};
use crate::Error;

/// While a client waits for a key, the server says this often that it is still there.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// A server that was not heard for this long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a call that does not wait for anybody else may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the store until it is dropped.
pub struct TcpStoreServer {
    address: SocketAddr,
    shared: Arc<ServerState>,
    thread: Option<JoinHandle<()>>,
    /// The process (counted in forks) that serves.
    generation: u64,
}

#[derive(Default)]
struct ServerState {
    values: MemoryStore,
    stopping: AtomicBool,
    clients: Mutex<HashMap<u64, Arc<StoreConnection>>>,
    next_client: AtomicU64,
}

impl TcpStoreServer {
    /// Starts serving on this `host:port`. Port 0 chooses a free one.
    pub fn start(address: &str) -> Result<Self, Error> {
        let cannot = |error: std::io::Error| {
            Error::Config(format!(
                "cannot serve the rendezvous on {address}: {error}. \
                 Choose a free port of this host as MASTER_PORT"
            ))
        };
        let listener = weft_transport_tcp::listen(address).map_err(cannot)?;
        let registration = Registration::new(listener.as_fd()).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let shared = Arc::new(ServerState::default());
        let thread = {
            let shared = shared.clone();
            let builder = thread::Builder::new().name("weft-store".into());
            builder.spawn(move || {
                shared.listen(&listener);
                drop(registration);
            })
        };
        Ok(Self {
            address,
            shared,
            thread: Some(thread.map_err(cannot)?),
            generation: fork::generation(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TcpStoreServer {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        self.shared.stopping.store(true, Ordering::SeqCst);
        // The listening thread looks at the flag after every connection: this is the last one.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let woken = TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            // A panic there was reported by the thread itself.
            let _ = thread.join();
        }
        for client in lock(&self.shared.clients).values() {
            client.end();
        }
    }
}

impl ServerState {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let accepted = listener.accept();
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            match accepted.and_then(|(stream, _)| StoreConnection::new(stream, None)) {
                Ok(client) => self.welcome(client),
                // Out of descriptors, most likely: others may give some back.
                Err(_) => thread::sleep(CANCEL_POLL),
            }
        }
    }

    fn welcome(self: &Arc<Self>, client: StoreConnection) {
        let client = Arc::new(client);
        let number = self.next_client.fetch_add(1, Ordering::Relaxed);
        lock(&self.clients).insert(number, client.clone());
        let shared = self.clone();
        let builder = thread::Builder::new()
            .name("weft-store-client".into())
            .stack_size(256 << 10);
        let started = builder.spawn(move || {
            // However the conversation ends, the connection ends with it, and the client knows.
            let _ = shared.converse(&client);
            client.end();
            lock(&shared.clients).remove(&number);
        });
        if started.is_err() {
            lock(&self.clients).remove(&number);
        }
    }

    fn converse(&self, client: &StoreConnection) -> Result<(), StoreFailure> {
        let far = || Instant::now() + Duration::from_secs(365 * 24 * 3600);
        client.greet(Instant::now() + SILENCE_MAX, &self.stopping)?;
        loop {
            let reply = match client.receive(far(), &self.stopping)? {
                StoreRequest::Set { key, value } => {
                    // A store in memory takes everything.
                    let _ = self.values.set(&key, &value);
                    StoreReply::Done
                }
                StoreRequest::Has { key } => {
                    StoreReply::Has(matches!(self.values.has(&key), Ok(true)))
                }
                StoreRequest::Get { keys, wait_millis } => {
                    self.collect(client, &keys, wait_millis)?
                }
            };
            client.send(&reply, Instant::now() + CALL_TIMEOUT, &self.stopping)?;
        }
    }

    /// Waits for all keys, with a sign of life to the client now and then.
    fn collect(
        &self,
        client: &StoreConnection,
        keys: &[String],
        wait_millis: u32,
    ) -> Result<StoreReply, StoreFailure> {
        let deadline = Instant::now() + Duration::from_millis(wait_millis.into());
        let mut values = Vec::with_capacity(keys.len().min(4096));
        while values.len() < keys.len() {
            let key = &keys[values.len()];
            let until = deadline.min(Instant::now() + HEARTBEAT);
            match self.values.wait(key, until, &self.stopping, HEARTBEAT) {
                Ok(value) => values.push(value),
                Err(Error::Timeout { .. }) if Instant::now() < deadline => {
                    client.send(
                        &StoreReply::Waiting,
                        Instant::now() + CALL_TIMEOUT,
                        &self.stopping,
                    )?;
                }
                Err(Error::Timeout { .. }) => return Ok(StoreReply::Missing(key.clone())),
                Err(_) => return Err(StoreFailure::Ended),
            }
        }
        Ok(StoreReply::Values(values))
    }
}

/// A client of a [`TcpStoreServer`].
///
/// Every call has a connection of its own while it lasts, so threads do not wait for each other.
pub struct TcpStore {
    address: String,
    idle: Mutex<Vec<StoreConnection>>,
}

impl TcpStore {
    /// Connects to the server at this `host:port`, which may start later.
    pub fn connect(address: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Self, Error> {
        let store = Self {
            address: address.into(),
            idle: Mutex::default(),
        };
        let first = store.dial(deadline, cancel)?;
        lock(&store.idle).push(first);
        Ok(store)
    }

    /// Tries again and again: rank 0 may not be there yet.
    fn dial(&self, deadline: Instant, cancel: &AtomicBool) -> Result<StoreConnection, Error> {
        let started = Instant::now();
        let mut failure = "no attempt was made".to_string();
        while Instant::now() < deadline {
            match self.dial_once(deadline, cancel) {
                Ok(connection) => return Ok(connection),
                Err(_) if cancel.load(Ordering::Relaxed) => return Err(Error::cancelled()),
                Err(error) => failure = error,
            }
            thread::sleep(CANCEL_POLL.min(deadline.saturating_duration_since(Instant::now())));
        }
        Err(Error::Timeout {
            operation: "rendezvous".into(),
            waiting_for: format!("rank 0's store at {} ({failure})", self.address),
            after: started.elapsed(),
        })
    }

    fn dial_once(&self, deadline: Instant, cancel: &AtomicBool) -> Result<StoreConnection, String> {
        let addresses = self.address.to_socket_addrs();
        let mut failure = "the name has no address".to_string();
        for address in addresses.map_err(|error| error.to_string())? {
            let until = deadline.min(Instant::now() + Duration::from_secs(3));
            match greet(address, until, cancel) {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    /// One request and its reply.
    fn call(
        &self,
        request: &StoreRequest,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<StoreReply, Error> {
        let idle = lock(&self.idle).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.dial(deadline, cancel)?,
        };
        let reply = exchange(&connection, request, cancel);
        match reply {
            Ok(reply) => {
                lock(&self.idle).push(connection);
                Ok(reply)
            }
            Err(StoreFailure::Cancelled) => Err(Error::cancelled()),
            Err(failure) => Err(Error::PeerLost {
                rank: Some(0),
                host: self.address.clone(),
                detail: format!("its store, where the ranks meet, {failure}"),
            }),
        }
    }
}

fn greet(
    address: SocketAddr,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<StoreConnection, LinkError> {
    let stream = weft_transport_tcp::connect(address, deadline, cancel)?;
    let connection = StoreConnection::new(stream, Some(CANCEL_POLL))?;
    let greeted = connection.greet(deadline, cancel);
    greeted.map_err(|failure| LinkError::Refused(format!("whoever listens there {failure}")))?;
    Ok(connection)
}

fn exchange(
    connection: &StoreConnection,
    request: &StoreRequest,
    cancel: &AtomicBool,
) -> Result<StoreReply, StoreFailure> {
    connection.send(request, Instant::now() + CALL_TIMEOUT, cancel)?;
    loop {
        match connection.receive(Instant::now() + SILENCE_MAX, cancel)? {
            StoreReply::Waiting => {}
            reply => return Ok(reply),
        }
    }
}

fn unexpected() -> Error {
    Error::Internal("the store's server gave an answer to another question".into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for TcpStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let request = StoreRequest::Set {
            key: key.into(),
            value: value.into(),
        };
        let deadline = Instant::now() + CALL_TIMEOUT;
        match self.call(&request, deadline, &AtomicBool::new(false))? {
            StoreReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    fn get(&self, key: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Vec<u8>, Error> {
        let mut values = self.multi_get(&[key.into()], deadline, cancel)?;
        values.pop().ok_or_else(unexpected)
    }

    fn multi_get(
        &self,
        keys: &[String],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let started = Instant::now();
        let wait = deadline.saturating_duration_since(started).as_millis();
        let request = StoreRequest::Get {
            keys: keys.into(),
            wait_millis: u32::try_from(wait).unwrap_or(u32::MAX),
        };
        match self.call(&request, deadline, cancel)? {
            StoreReply::Values(values) if values.len() == keys.len() => Ok(values),
            StoreReply::Missing(key) => Err(key_timeout(&key, started.elapsed())),
            _ => Err(unexpected()),
        }
    }

    fn has(&self, key: &str) -> Result<bool, Error> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        match self.call(
            &StoreRequest::Has { key: key.into() },
            deadline,
            &AtomicBool::new(false),
        )? {
            StoreReply::Has(has) => Ok(has),
            _ => Err(unexpected()),
        }
    }
}

#[cfg(test)]
mod tests;
