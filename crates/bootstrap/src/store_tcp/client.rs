//! The client of a store over TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use weft_call::Error;
use weft_transport::fork::Descriptor;
use weft_transport::{LinkError, failed, is_own_limit, os_code};

use super::StoreAccess;
use super::channel::{CHUNK_BYTES_MAX, StoreChannel};
use super::protocol::{
    BODY_BYTES_MAX, KEYS_MAX, REPLY_BYTES_MAX, StoreFailure, StoreReply, StoreRequest,
    VALUE_BYTES_MAX, message,
};
use super::retry::{AttemptFailure, Retry};
use super::server::Refusals;
use super::status::StatusAnswers;
use super::{TcpStoreServer, UserError, lookup_of};
use crate::lock::lock;
use crate::store::{CANCEL_POLL, StatusReport, Store, key_timeout};

/// A server that has sent nothing for this long is lost.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// A connection on which nothing has come for this long may have been forgotten on the way, by a
/// translator of addresses or a firewall: another one is tried. A server that lives sends something
/// every half second.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(4);
/// The timeout of a call that does not wait for another client.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of an attempt to connect.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long each call retries a server that has closed a connection, or is lost: short, so that
/// calls that follow a failure, such as reporting it to other ranks, do not wait again.
const LOST_RETRY: Duration = Duration::from_millis(300);
/// How long a listener without the secret is tried again. (A server flooded by strangers may have
/// closed the first connections to make room.)
const STRANGER_RETRY: Duration = Duration::from_secs(1);

/// A client of a [`TcpStoreServer`](super::TcpStoreServer).
///
/// Every call has its own connection while it lasts, so threads do not wait for each other.
pub struct TcpStore {
    address: String,
    /// Other addresses of the server, and its refusals: for the process that serves it.
    served: Option<Served>,
    access: StoreAccess,
    idle: Mutex<Vec<ClientConnection>>,
    /// The number of the server that the first connection led to. Another process may listen at the
    /// address by now, with other keys.
    identity: OnceLock<u64>,
    /// Whether the last call found no server.
    lost: AtomicBool,
}

/// The information about a store in the process that serves it.
struct Served {
    addresses: Vec<SocketAddr>,
    refusals: Arc<Refusals>,
    status: Arc<StatusAnswers>,
}

/// A server's answer: the values are empty unless they were requested.
pub(super) struct StoreAnswer {
    pub(super) reply: StoreReply,
    values: Vec<Vec<u8>>,
}

pub(super) enum DialFailure {
    /// A later attempt may succeed.
    Passing(String),
    /// The listener does not belong to the job, for this reason.
    Stranger(String),
    Final(Error),
}

impl TcpStore {
    /// Connects to the server at this `host:port`, which may start later, and whose name may become
    /// known later.
    ///
    /// If the two ends have different secrets, the error is [`Error::Auth`], after a second.
    ///
    /// # Errors
    /// [`Error::Auth`] if the two ends have different secrets or no common CA; [`Error::Timeout`]
    /// past the deadline; [`Error::Aborted`] once `cancel` is true; [`Error::Config`] if the
    /// address is not allowed.
    pub fn connect(
        address: &str,
        access: StoreAccess,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Self, Error> {
        Self::connect_with_retry(address, access, &Retry::quiet(deadline, cancel))
    }

    /// Like [`connect`](Self::connect); reports a name that is not known yet.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_with_retry(
        address: &str,
        access: StoreAccess,
        retry: &Retry<'_>,
    ) -> Result<Self, Error> {
        Self::connect_with(address, None, access, retry)
    }

    /// Like [`TcpStore::connect`], to the server of this process. It is reached at the address
    /// where it listens: the address for other hosts may lead through a forwarded port, which this
    /// host need not reach.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_own(
        server: &TcpStoreServer,
        address: &str,
        access: StoreAccess,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Self, Error> {
        let served = Served {
            addresses: server.own_addresses(),
            refusals: server.refusals(),
            status: server.status(),
        };
        let retry = Retry::quiet(deadline, cancel);
        Self::connect_with(address, Some(served), access, &retry)
    }

    fn connect_with(
        address: &str,
        served: Option<Served>,
        access: StoreAccess,
        retry: &Retry<'_>,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let store = Self {
            address: address.into(),
            served,
            access,
            idle: Mutex::default(),
            identity: OnceLock::new(),
            lost: AtomicBool::new(false),
        };
        let mut lookup = lookup_of(address)?;
        let known = retry.try_until(|| {
            let (soon, cancel) = (retry.next_report(), retry.cancel);
            (store.access).resolve(address, &mut lookup, soon, cancel)
        });
        known.map_err(|setback| match setback {
            AttemptFailure::Passing(error) => store.late(started, &error.to_string()),
            AttemptFailure::Final(error) => error,
        })?;
        let first = store.dial(retry.deadline, retry.cancel)?;
        lock(&store.idle).push(first);
        Ok(store)
    }

    fn addresses(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<SocketAddr>, AttemptFailure> {
        match &self.served {
            Some(served) => Ok(served.addresses.clone()),
            None => {
                let mut lookup = lookup_of(&self.address).map_err(AttemptFailure::Final)?;
                (self.access).resolve(&self.address, &mut lookup, deadline, cancel)
            }
        }
    }

    /// Retries: rank 0 may not be there yet.
    fn dial(&self, deadline: Instant, cancel: &AtomicBool) -> Result<ClientConnection, Error> {
        let started = Instant::now();
        let mut failure = "no attempt was made".to_string();
        let mut strange_since = None;
        while Instant::now() < deadline {
            match self.dial_once(deadline, cancel) {
                Ok(connection) => return Ok(connection),
                Err(_) if cancel.load(Ordering::Relaxed) => return Err(Error::cancelled()),
                Err(DialFailure::Final(error)) => return Err(error),
                Err(DialFailure::Passing(error)) => {
                    strange_since = None;
                    failure = error;
                }
                Err(DialFailure::Stranger(why)) => {
                    let since = *strange_since.get_or_insert_with(Instant::now);
                    let error = self.stranger(&why);
                    if since.elapsed() >= STRANGER_RETRY {
                        return Err(error);
                    }
                    failure = error.to_string();
                }
            }
            thread::sleep(CANCEL_POLL.min(deadline.saturating_duration_since(Instant::now())));
        }
        Err(self.late(started, &failure))
    }

    fn late(&self, started: Instant, why: &str) -> Error {
        Error::Timeout {
            operation: "rendezvous".into(),
            waiting_for: format!(
                "rank 0's store at {} ({why}; all ranks need the same MASTER_ADDR and MASTER_PORT)",
                self.address
            ),
            after: started.elapsed(),
        }
    }

    /// A connection for a call that finds none, to a server that existed before.
    fn dial_again(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<ClientConnection, Error> {
        let dialled = match self.lost.load(Ordering::Relaxed) {
            false => self.dial(deadline, cancel),
            true => {
                let until = deadline.min(Instant::now() + LOST_RETRY);
                let once = self.dial_once(until, cancel);
                once.map_err(|failure| match failure {
                    _ if cancel.load(Ordering::Relaxed) => Error::cancelled(),
                    DialFailure::Passing(why) => self.peer_lost(&format!("is gone ({why})")),
                    DialFailure::Stranger(why) => self.stranger(&why),
                    DialFailure::Final(error) => error,
                })
            }
        };
        self.lost.store(dialled.is_err(), Ordering::Relaxed);
        dialled
    }

    fn peer_lost(&self, event: &str) -> Error {
        Error::PeerLost {
            rank: Some(0),
            host: self.address.clone(),
            detail: format!("its store, where the ranks meet, {event}"),
        }
    }

    /// One attempt at each address of the name.
    pub(super) fn dial_once(
        &self,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<ClientConnection, DialFailure> {
        let addresses = self
            .addresses(deadline, cancel)
            .map_err(|error| match error {
                AttemptFailure::Passing(error) => self.refused(&error),
                AttemptFailure::Final(error) => DialFailure::Final(error),
            })?;
        let mut failure = DialFailure::Passing("the name has no address".into());
        for address in addresses {
            let until = deadline.min(Instant::now() + ATTEMPT_TIMEOUT);
            match self.open(address, until, cancel) {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn open(
        &self,
        address: SocketAddr,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<ClientConnection, DialFailure> {
        let stream = weft_transport_tcp::connect(address, deadline, cancel);
        let stream = stream.map_err(|error| match error {
            LinkError::Io(error) => self.refused(&error),
            error => DialFailure::Passing(error.to_string()),
        })?;
        let mut wire = Vec::new();
        let channel = StoreChannel::of_client(&self.access, &self.address, &mut wire)
            .map_err(DialFailure::Final)?;
        let mut connection = ClientConnection { stream, channel };
        match connection.handshake(wire, deadline, cancel) {
            Ok(()) => match self.access.check_user(&connection.stream) {
                Ok(()) => self.check_identity(connection, address, deadline, cancel),
                Err(error) => Err(self.not_ours(error)),
            },
            // The server sends nothing to clients that it does not know.
            Err(StoreFailure::Ended) => match self.access.check_listener(address) {
                Ok(()) => Err(self.not_ours(UserError::Ended)),
                Err(error) => Err(self.not_ours(error)),
            },
            Err(StoreFailure::Stranger(why)) => Err(DialFailure::Stranger(why)),
            Err(failure) => Err(unable(address, &failure)),
        }
    }

    /// The connection, if it leads to the server that the first one led to.
    fn check_identity(
        &self,
        mut connection: ClientConnection,
        address: SocketAddr,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<ClientConnection, DialFailure> {
        let silence_max = deadline.saturating_duration_since(Instant::now());
        match connection.exchange(&StoreRequest::Identity, silence_max, cancel) {
            Ok(StoreAnswer {
                reply: StoreReply::Identity(identity),
                ..
            }) => match *self.identity.get_or_init(|| identity) == identity {
                true => Ok(connection),
                false => Err(DialFailure::Final(
                    self.peer_lost("is gone, and another one is there"),
                )),
            },
            Ok(_) => Err(unable(address, &StoreFailure::Malformed)),
            Err(failure) => Err(unable(address, &failure)),
        }
    }

    fn not_ours(&self, error: UserError) -> DialFailure {
        match error {
            UserError::Other(why) => DialFailure::Stranger(why),
            UserError::Ended => DialFailure::Stranger(self.access.silence().into()),
            UserError::Unknown(error) if is_own_limit(&error) => self.refused(&error),
            UserError::Unknown(error) => DialFailure::Final(Error::Config(format!(
                "this process cannot find out whose process listens at {}, where the ranks meet without a secret \
                 ({error}): set WEFT_SECRET to the same random text on all ranks",
                self.address
            ))),
        }
    }

    /// A refusal by the operating system may be temporary, except for a limit of this process, or a
    /// rule.
    fn refused(&self, error: &io::Error) -> DialFailure {
        match os_code(error) {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => self.refused_here(error),
            _ if is_own_limit(error) => self.refused_here(error),
            _ => DialFailure::Passing(error.to_string()),
        }
    }

    fn refused_here(&self, error: &io::Error) -> DialFailure {
        let action = format!("connect to rank 0's store at {}", self.address);
        DialFailure::Final(Error::refused_here(&action, error))
    }

    fn stranger(&self, why: &str) -> Error {
        if self.identity.get().is_some() {
            return self.peer_lost(&format!(
                "is gone, and the process that listens there now {why}"
            ));
        }
        Error::Auth(format!(
            "the process that listens at {}, where the ranks meet, {why}: {}",
            self.address,
            self.access.requirement()
        ))
    }

    /// One request and its answer.
    ///
    /// The server closes connections that were idle for long, and further ones when it has too
    /// many: then the request is sent again, as every request may be repeated. It is also sent
    /// again, once, when the server is silent on this connection and answers on a new one.
    fn call(
        &self,
        mut request: StoreRequest,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<StoreAnswer, Error> {
        if let Some(why) = request.refusal() {
            return Err(Error::Config(format!(
                "the rendezvous' store refuses {why}"
            )));
        }
        // A call that does not wait for a key still takes the time to connect.
        let connected = deadline.max(Instant::now() + ATTEMPT_TIMEOUT);
        let idle = lock(&self.idle).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.dial_again(connected, cancel)?,
        };
        let mut silence_max = FORGOTTEN_AFTER;
        let mut answer = connection.exchange(&request, silence_max, cancel);
        loop {
            let fresh = match answer {
                Err(StoreFailure::Ended) if Instant::now() < connected => {
                    let soon = connected.min(Instant::now() + LOST_RETRY);
                    self.dial(soon, cancel).ok()
                }
                // The deadline may have passed meanwhile: then the server answers immediately.
                Err(StoreFailure::Silent) if silence_max < SILENCE_MAX => {
                    let lost = Instant::now() + SILENCE_MAX - silence_max;
                    silence_max = SILENCE_MAX;
                    self.dial(lost, cancel).ok()
                }
                _ => break,
            };
            lock(&self.idle).clear();
            let Some(fresh) = fresh else {
                break;
            };
            connection = fresh;
            if let StoreRequest::Get { wait_millis, .. } = &mut request {
                *wait_millis = millis_until(deadline);
            }
            answer = connection.exchange(&request, silence_max, cancel);
            if answer.is_err() {
                thread::sleep(CANCEL_POLL);
            }
        }
        match answer {
            Ok(answer) => {
                lock(&self.idle).push(connection);
                match answer.reply {
                    StoreReply::Refused(why) => {
                        Err(Error::Config(format!("the rendezvous' store: {why}")))
                    }
                    _ => Ok(answer),
                }
            }
            Err(StoreFailure::Cancelled) => Err(Error::cancelled()),
            Err(_) if cancel.load(Ordering::Relaxed) => Err(Error::cancelled()),
            Err(failure) => {
                self.lost.store(true, Ordering::Relaxed);
                Err(self.peer_lost(&failure.to_string()))
            }
        }
    }

    /// The status of the job whose ranks meet here, as its rank 0 gathers it.
    ///
    /// # Errors
    /// [`Error::Config`] if the process that serves the store gives no status;
    /// [`Error::PeerLost`] if it does not answer; [`Error::Aborted`] once `cancel` is true.
    pub fn status(&self, deadline: Instant, cancel: &AtomicBool) -> Result<String, Error> {
        let answer = self.call(StoreRequest::Status, deadline, cancel)?;
        // The server has closed the connection.
        lock(&self.idle).clear();
        let value = answer.values.into_iter().next().ok_or_else(unexpected)?;
        String::from_utf8(value).map_err(|_| unexpected())
    }

    /// At most as many keys as one request may name.
    fn get_some(
        &self,
        keys: &[String],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let started = Instant::now();
        let request = StoreRequest::Get {
            keys: keys.into(),
            wait_millis: millis_until(deadline),
        };
        let answer = self.call(request, deadline, cancel)?;
        match answer.reply {
            StoreReply::Values(_) if answer.values.len() == keys.len() => Ok(answer.values),
            StoreReply::Missing(key) => Err(key_timeout(&key, started.elapsed())),
            _ => Err(unexpected()),
        }
    }
}

impl Store for TcpStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let request = StoreRequest::Set {
            key: key.into(),
            value: value.into(),
        };
        let deadline = Instant::now() + CALL_TIMEOUT;
        match self.call(request, deadline, &AtomicBool::new(false))?.reply {
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
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_MAX) {
            values.append(&mut self.get_some(some, deadline, cancel)?);
        }
        Ok(values)
    }

    fn refusals(&self) -> Option<String> {
        self.served.as_ref()?.refusals.text()
    }

    fn answer_status(&self, report: StatusReport) {
        if let Some(served) = &self.served {
            served.status.answer_by(report);
        }
    }

    fn is_authenticated(&self) -> bool {
        self.access.is_authenticated()
    }

    fn has(&self, key: &str) -> Result<bool, Error> {
        let request = StoreRequest::Has { key: key.into() };
        let deadline = Instant::now() + CALL_TIMEOUT;
        match self.call(request, deadline, &AtomicBool::new(false))?.reply {
            StoreReply::Has(has) => Ok(has),
            _ => Err(unexpected()),
        }
    }
}

fn unable(address: SocketAddr, failure: &StoreFailure) -> DialFailure {
    DialFailure::Passing(format!("the process that listens at {address} {failure}"))
}

fn millis_until(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now());
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX)
}

fn unexpected() -> Error {
    Error::Internal("the store's server sent an unexpected reply".into())
}

/// A client's connection to the server.
pub(super) struct ClientConnection {
    stream: Descriptor<TcpStream>,
    channel: StoreChannel,
}

impl ClientConnection {
    /// Checks that both ends speak this protocol and belong to the same job. `wire` holds the first
    /// bytes to send.
    fn handshake(
        &mut self,
        mut wire: Vec<u8>,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), StoreFailure> {
        prepare(&self.stream)?;
        let mut buffer = [0; 16 << 10];
        loop {
            write(&self.stream, &wire, deadline, cancel)?;
            wire.clear();
            if self.channel.is_open() {
                return Ok(());
            }
            match retry(
                "recvfrom",
                (&*self.stream).read(&mut buffer),
                deadline,
                cancel,
            )? {
                Some(0) => return Err(StoreFailure::Ended),
                bytes => (self.channel).feed(&buffer[..bytes.unwrap_or(0)], &mut wire)?,
            }
        }
    }

    pub(super) fn exchange(
        &mut self,
        request: &StoreRequest,
        silence_max: Duration,
        cancel: &AtomicBool,
    ) -> Result<StoreAnswer, StoreFailure> {
        let plain = message(request);
        let mut wire = Vec::with_capacity(plain.len() + plain.len() / 512 + 64);
        for chunk in plain.chunks(CHUNK_BYTES_MAX) {
            self.channel.seal(chunk, &mut wire);
        }
        write(&self.stream, &wire, Instant::now() + CALL_TIMEOUT, cancel)?;
        let reply = loop {
            let body = self.receive(BODY_BYTES_MAX, silence_max, cancel)?;
            match postcard::from_bytes(&body) {
                Ok(StoreReply::Waiting) => {}
                Ok(reply) => break reply,
                Err(_) => return Err(StoreFailure::Malformed),
            }
        };
        let count = match &reply {
            StoreReply::Values(count) => *count as usize,
            _ => 0,
        };
        if count > KEYS_MAX {
            return Err(StoreFailure::Malformed);
        }
        let mut values = Vec::with_capacity(count);
        let mut left = REPLY_BYTES_MAX;
        for _ in 0..count {
            let value = self.receive(left.min(VALUE_BYTES_MAX), silence_max, cancel)?;
            left -= value.len();
            values.push(value);
        }
        Ok(StoreAnswer { reply, values })
    }

    /// The next message's body. Memory is allocated as bytes arrive, not as announced.
    fn receive(
        &mut self,
        bytes_max: usize,
        silence_max: Duration,
        cancel: &AtomicBool,
    ) -> Result<Vec<u8>, StoreFailure> {
        let mut buffer = [0; 16 << 10];
        let mut deadline = Instant::now() + silence_max;
        loop {
            if let Some(body) = self.channel.next_body(bytes_max)? {
                return Ok(body);
            }
            match retry(
                "recvfrom",
                (&*self.stream).read(&mut buffer),
                deadline,
                cancel,
            )? {
                Some(0) => return Err(StoreFailure::Ended),
                Some(bytes) => {
                    let mut wire = Vec::new();
                    self.channel.feed(&buffer[..bytes], &mut wire)?;
                    write(&self.stream, &wire, deadline, cancel)?;
                    deadline = Instant::now() + silence_max;
                }
                None => {}
            }
        }
    }
}

/// Lets blocking calls check their deadline and cancellation at intervals.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CANCEL_POLL))?;
    stream.set_write_timeout(Some(CANCEL_POLL))
}

fn write(
    mut stream: &TcpStream,
    mut bytes: &[u8],
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<(), StoreFailure> {
    while !bytes.is_empty() {
        if let Some(written) = retry("sendto", stream.write(bytes), deadline, cancel)? {
            bytes = &bytes[written..];
        }
    }
    Ok(())
}

/// The count of bytes, or `None` if the call must be retried.
fn retry(
    call: &'static str,
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
            _ => Err(StoreFailure::Io(failed(call, error))),
        },
    }
}
