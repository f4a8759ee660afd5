//! The server of a store over TCP: one thread for all connections.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_call::Error;
use weft_call::remedy;
use weft_transport::fork::{self, Descriptor};
use weft_transport::{Shortage, failed, random, thread_time};
use weft_transport_tcp::{has_waiting_caller, poll, poll_entry};

use super::StoreAccess;
use super::budget::HandshakeBudget;
use super::protocol::{REPLY_BYTES_MAX, StoreFailure, StoreReply, StoreRequest};
use super::retry::{AttemptFailure, Retry};
use super::served::{PendingRequest, ServedConnection};
use super::status::StatusAnswers;
use super::values::KeptValues;
use super::{UserError, lookup_of};

/// The interval of signs of life while a client waits for a key.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Connections accepted in one turn.
const ACCEPTED_PER_TURN: usize = 64;
/// The pause in accepting when this process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(40);

/// Limits for clients and strangers.
#[derive(Clone, Debug)]
pub(super) struct StoreLimits {
    /// Connections of clients. Beyond, the one that was idle longest is closed, else one that waits
    /// for a key: clients that set keys are always served. A client whose connection was closed
    /// reconnects for its next request.
    pub(super) clients: usize,
    /// Connections that are not authenticated yet. Beyond, the oldest one of the source with the
    /// most is closed.
    pub(super) strangers: usize,
    /// The timeout of their authentication.
    pub(super) stranger_time: Duration,
    /// The processor time that they may take in a burst, and permanently, as one part in this many
    /// of a core: see [`HandshakeBudget`].
    pub(super) stranger_processor: (Duration, u32),
    /// How long a client's connection stays open without data.
    pub(super) idle_time: Duration,
    /// Bytes of all keys and values.
    pub(super) stored_bytes: usize,
    /// Bytes of all incomplete requests.
    pub(super) held_bytes: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            clients: 16_384,
            strangers: 256,
            stranger_time: Duration::from_secs(10),
            stranger_processor: (Duration::from_secs(1), 5),
            idle_time: Duration::from_secs(60),
            stored_bytes: 256 << 20,
            held_bytes: 128 << 20,
        }
    }
}

/// Connections that did not prove that they belong to the job.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Option<(u64, IpAddr)>>);

impl Refusals {
    fn add(&self, address: IpAddr) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.map_or(0, |(count, _)| count);
        *seen = Some((before + 1, address));
        if before == 0 {
            // The refused process cannot prove that its failure is this job's, so the ranks wait
            // for it until their timeout: the user reads the reason now. A failed write to the
            // standard error ends nothing.
            let _ = writeln!(
                io::stderr(),
                "weft: rank 0's store refused a connection from {}, which did not show that it belongs to this \
                 job: is WEFT_SECRET the same on all ranks, and are all of one user if there is none?",
                address.to_canonical()
            );
        }
    }

    /// A note for ranks that wait until the timeout.
    pub(super) fn text(&self) -> Option<String> {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map(|(count, last)| {
            format!(
                "the store refused {count} connections, the last from {}, which did not prove that they belong to this \
                 job: is WEFT_SECRET the same on all ranks, and are all of one user if there is none?",
                last.to_canonical()
            )
        })
    }
}

/// Serves the store until it is dropped.
pub struct TcpStoreServer {
    address: SocketAddr,
    refusals: Arc<Refusals>,
    status: Arc<StatusAnswers>,
    everywhere: bool,
    /// Its other end is the server's.
    lifeline: Option<Descriptor<UnixStream>>,
    thread: Option<JoinHandle<()>>,
    /// The generation (number of forks) of the serving process.
    generation: u64,
}

impl TcpStoreServer {
    /// Starts serving on this `host:port`. Port 0 chooses a free one.
    ///
    /// With [`StoreAccess::Secret`] or [`StoreAccess::Tls`] it listens on all addresses if this one
    /// is not one of this host, as in a cluster that forwards ports: see
    /// [`listens_everywhere`](Self::listens_everywhere).
    ///
    /// # Errors
    /// [`Error::Config`] if the address cannot be resolved, is not allowed, or cannot be listened
    /// on.
    pub fn start(address: &str, access: &StoreAccess) -> Result<Self, Error> {
        Self::start_with(address, access, StoreLimits::default())
    }

    /// Like [`start`](Self::start). A name that is not known yet is retried, and so is an address
    /// that is not this host's yet.
    ///
    /// # Errors
    /// As for [`start`](Self::start), past the deadline; [`Error::Aborted`] once its `cancel` is
    /// true.
    pub fn start_with_retry(
        address: &str,
        access: &StoreAccess,
        retry: &Retry<'_>,
    ) -> Result<Self, Error> {
        Self::begin(address, access, StoreLimits::default(), retry)
    }

    pub(super) fn start_with(
        address: &str,
        access: &StoreAccess,
        limits: StoreLimits,
    ) -> Result<Self, Error> {
        let cancel = AtomicBool::new(false);
        let retry = Retry::quiet(Instant::now(), &cancel);
        Self::begin(address, access, limits, &retry)
    }

    fn begin(
        address: &str,
        access: &StoreAccess,
        limits: StoreLimits,
        retry: &Retry<'_>,
    ) -> Result<Self, Error> {
        let cannot = |error: io::Error| cannot_serve(address, &error);
        let mut lookup = lookup_of(address)?;
        let listening = retry.try_until(|| {
            let (soon, cancel) = (retry.next_report(), retry.cancel);
            let addresses = access.resolve(address, &mut lookup, soon, cancel)?;
            listen(&addresses, access).map_err(|error| match error.kind() {
                io::ErrorKind::AddrNotAvailable => AttemptFailure::Passing(error),
                _ => AttemptFailure::Final(cannot(error)),
            })
        });
        let (listener, everywhere) = listening.map_err(|setback| match setback {
            AttemptFailure::Passing(error) => cannot(error),
            AttemptFailure::Final(error) => error,
        })?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let [lifeline, watched] = Descriptor::pair().map_err(cannot)?;
        let spare = || Descriptor::make(|| watched.try_clone()).map_err(cannot);
        let spare = [spare()?, spare()?];
        let identity = u64::from_le_bytes(random().map_err(cannot)?);
        let budget = HandshakeBudget::new(limits.stranger_processor, Instant::now());
        let (refusals, status) = (Arc::<Refusals>::default(), Arc::<StatusAnswers>::default());
        let serving = Serving {
            listener,
            refusals: Arc::clone(&refusals),
            status: Arc::clone(&status),
            spare: Some(spare),
            lifeline: watched,
            access: access.clone(),
            identity,
            values: KeptValues::new(limits.stored_bytes),
            limits,
            next_serial: 0,
            strangers: BTreeMap::new(),
            budget,
            clients: BTreeMap::new(),
            waiters: HashMap::new(),
            held: 0,
            due: Instant::now(),
            paused: None,
            shortage: Shortage::default(),
        };
        let builder = thread::Builder::new().name("weft-store".into());
        let thread = builder.spawn(move || serving.run());
        let thread =
            thread.map_err(|error| cannot(failed("starting the thread weft-store", error)))?;
        Ok(Self {
            address,
            refusals,
            status,
            everywhere,
            lifeline: Some(lifeline),
            thread: Some(thread),
            generation: fork::generation(),
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The addresses at which this process itself reaches it.
    pub(super) fn own_addresses(&self) -> Vec<SocketAddr> {
        let port = self.address.port();
        let loopback: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
        match self.address.ip() {
            ip if !ip.is_unspecified() => vec![self.address],
            IpAddr::V4(_) => vec![(loopback[1], port).into()],
            // It may accept both families.
            IpAddr::V6(_) => loopback.map(|ip| (ip, port).into()).into(),
        }
    }

    pub(super) fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    pub(super) fn status(&self) -> Arc<StatusAnswers> {
        Arc::clone(&self.status)
    }

    /// Whether it listens on all addresses because the requested one is not one of this host.
    pub fn listens_everywhere(&self) -> bool {
        self.everywhere
    }
}

impl Drop for TcpStoreServer {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        if let Some(thread) = self.thread.take() {
            fork::join(thread, self.generation);
        }
    }
}

fn cannot_serve(address: &str, error: &io::Error) -> Error {
    let advice = match remedy(error) {
        none if none.is_empty() => {
            ". Choose an address of this host as MASTER_ADDR, and a free port as MASTER_PORT".into()
        }
        advice => advice,
    };
    Error::Config(format!(
        "cannot serve the rendezvous on {address}: {error}{advice}"
    ))
}

/// A listener, and whether it is on all addresses instead of these.
fn listen(
    addresses: &[SocketAddr],
    access: &StoreAccess,
) -> io::Result<(Descriptor<TcpListener>, bool)> {
    let not_ours = match weft_transport_tcp::listen(addresses) {
        Ok(listener) => return Ok((listener, false)),
        Err(error) => error,
    };
    let port = match addresses.first() {
        Some(address)
            if not_ours.kind() == io::ErrorKind::AddrNotAvailable && access.is_authenticated() =>
        {
            address.port()
        }
        _ => return Err(not_ours),
    };
    let all: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, port).into(),
        (Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    Ok((weft_transport_tcp::listen(&all[..])?, true))
}

/// The server's thread.
struct Serving {
    listener: Descriptor<TcpListener>,
    refusals: Arc<Refusals>,
    status: Arc<StatusAnswers>,
    /// Kept for the first client, which is rank 0 itself: it must receive errors about missing
    /// descriptors. One is for its connection, one to determine the owner of its process.
    spare: Option<[Descriptor<UnixStream>; 2]>,
    lifeline: Descriptor<UnixStream>,
    access: StoreAccess,
    /// A number that no other server has.
    identity: u64,
    limits: StoreLimits,
    values: KeptValues,
    /// Connections are numbered in the order of their acceptance.
    next_serial: u64,
    strangers: BTreeMap<u64, ServedConnection>,
    budget: HandshakeBudget,
    clients: BTreeMap<u64, ServedConnection>,
    /// The connections that wait for each key.
    waiters: HashMap<String, Vec<u64>>,
    /// Bytes of all incomplete requests.
    held: usize,
    /// The time of the next action without an event.
    due: Instant,
    /// The end of a pause in accepting.
    paused: Option<Instant>,
    shortage: Shortage,
}

impl Serving {
    fn run(mut self) {
        loop {
            let listens = match self.paused {
                Some(_) => 0,
                None => libc::POLLIN,
            };
            let mut entries = vec![
                poll_entry(self.lifeline.as_raw_fd(), libc::POLLIN),
                poll_entry(self.listener.as_raw_fd(), listens),
            ];
            let now = Instant::now();
            let attends_strangers = self.budget.has_room(now);
            let connections = || self.clients.iter().chain(&self.strangers);
            let entry = |connection: &ServedConnection| connection.poll_entry(attends_strangers);
            entries.extend(connections().map(|(_, connection)| entry(connection)));
            let serials: Vec<u64> = connections().map(|(serial, _)| *serial).collect();
            let resumes = self.budget.resumes().filter(|_| !self.strangers.is_empty());
            let until = [self.paused, resumes].into_iter().flatten();
            let until = until.fold(self.due, Instant::min);
            let timeout = until.saturating_duration_since(now);
            if poll(&mut entries, timeout).is_err() {
                // Out of kernel memory: other processes may free some.
                thread::sleep(PAUSE);
            }
            if entries[0].revents != 0 {
                return;
            }
            let events = entries[2..].iter().map(|entry| entry.revents);
            let mut ready: Vec<_> = serials.into_iter().zip(events).collect();
            ready.retain(|(_, events)| *events != 0);
            ready.sort_by_key(|(serial, _)| self.precedence(*serial));
            for (serial, events) in ready {
                self.attend(serial, events);
            }
            let now = Instant::now();
            self.paused = self.paused.filter(|end| *end > now);
            if entries[1].revents != 0 {
                self.accept();
            }
            if self.due <= now {
                self.tend(now);
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_PER_TURN {
            drop(self.spare.take());
            let mut source = IpAddr::from(Ipv4Addr::UNSPECIFIED);
            let accepted = Descriptor::make(|| {
                let (stream, from) = self.listener.accept()?;
                source = from.ip().to_canonical();
                Ok(stream)
            });
            let accepted = accepted.map(|stream| (stream, source));
            match accepted.and_then(|stream| ServedConnection::new(stream, &self.access)) {
                Ok(connection) => {
                    if self.strangers.len() >= self.limits.strangers {
                        self.make_room_for(connection.source);
                    }
                    self.due = self.due.min(connection.moved + self.limits.stranger_time);
                    self.strangers.insert(self.next_serial, connection);
                    self.next_serial += 1;
                }
                Err(error) => {
                    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                    match error.kind() {
                        ConnectionAborted | Interrupted => continue,
                        // The kernel reports a limit even if no caller waits.
                        WouldBlock => self.shortage.end(),
                        _ if !has_waiting_caller(&self.listener) => self.shortage.end(),
                        // Out of descriptors, most likely.
                        _ => self.make_room(),
                    }
                    return;
                }
            }
        }
    }

    /// Rejects another user's process, once it has proven that it uses this protocol: reading the
    /// kernel's tables costs more than an idle connection.
    fn check_user(&self, connection: &ServedConnection) -> Result<(), StoreFailure> {
        self.access
            .check_user(connection.stream())
            .map_err(|error| match error {
                UserError::Ended => StoreFailure::Ended,
                UserError::Unknown(error) => StoreFailure::Io(error),
                UserError::Other(why) => StoreFailure::Stranger(why),
            })
    }

    /// Frees a descriptor, and pauses accepting for a moment: others need some, too.
    fn make_room(&mut self) {
        if !self.close_oldest_stranger() {
            self.close_idlest();
        }
        self.paused = Some(Instant::now() + PAUSE);
        if self.shortage.persists() {
            self.refuse_waits();
        }
    }

    /// Ends the waits of all clients: their keys must be set by ranks that cannot connect.
    fn refuse_waits(&mut self) {
        let why = "the process of rank 0, where the ranks meet, has no descriptor left for other ranks: \
                   raise its limit (ulimit -n)";
        self.waiters.clear();
        for client in self.clients.values_mut() {
            if client.wait.take().is_some() {
                client.reply(&StoreReply::Refused(why.into()));
            }
        }
        self.due = Instant::now(); // to send the replies
    }

    /// Closes the oldest stranger of the source that has the most, including the newcomer.
    fn make_room_for(&mut self, newcomer: IpAddr) {
        let mut counts = HashMap::from([(newcomer, 1_usize)]);
        for stranger in self.strangers.values() {
            *counts.entry(stranger.source).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let mut strangers = self.strangers.iter();
        let is_of_most =
            |stranger: &ServedConnection| counts.get(&stranger.source) == most.as_ref();
        let oldest = strangers.find(|(_, stranger)| is_of_most(stranger));
        let oldest = oldest.map(|(serial, _)| *serial);
        if let Some(stranger) = oldest.and_then(|serial| self.strangers.remove(&serial)) {
            self.held -= stranger.held();
        }
    }

    /// The order in which connections are served: clients, then strangers, first those whose source
    /// has taken the least time.
    fn precedence(&self, serial: u64) -> Option<Duration> {
        let stranger = self.strangers.get(&serial)?;
        Some(self.budget.taken_by(stranger.source))
    }

    /// Returns whether there was a stranger to close.
    fn close_oldest_stranger(&mut self) -> bool {
        let oldest = self.strangers.pop_first();
        self.held -= oldest.as_ref().map_or(0, |(_, stranger)| stranger.held());
        oldest.is_some()
    }

    /// Returns whether there was an idle client to close.
    fn close_idlest(&mut self) -> bool {
        let idle = self.clients.iter().filter(|(_, client)| client.is_idle());
        let idlest = idle.min_by_key(|(_, client)| client.moved);
        match idlest.map(|(serial, _)| *serial) {
            Some(serial) => self.clients.remove(&serial).is_some(),
            None => false,
        }
    }

    /// Handles an event of a connection.
    fn attend(&mut self, serial: u64, revents: i16) {
        let over = libc::POLLERR | libc::POLLHUP | libc::POLLRDHUP | libc::POLLNVAL;
        let gone = revents & over != 0;
        let was_stranger = self.strangers.contains_key(&serial);
        if was_stranger && !gone && !self.budget.has_room(Instant::now()) {
            return;
        }
        let stranger = self.strangers.remove(&serial);
        let Some(mut connection) = stranger.or_else(|| self.clients.remove(&serial)) else {
            return; // Closed earlier in this turn.
        };
        self.held -= connection.held();
        let conversed = match was_stranger {
            _ if gone => Err(StoreFailure::Ended),
            true => self.converse_with_stranger(serial, &mut connection),
            false => self.converse(serial, &mut connection, false),
        };
        if let Err(failure) = conversed {
            if was_stranger
                && matches!(failure, StoreFailure::Stranger(_) | StoreFailure::Malformed)
            {
                connection
                    .peer()
                    .into_iter()
                    .for_each(|ip| self.refusals.add(ip));
            }
            self.forget_wait(serial, &connection);
            return;
        }
        if connection.asks_status {
            return self.status.answer(connection);
        }
        let held = connection.held();
        if self.held + held > self.limits.held_bytes {
            return;
        }
        if was_stranger && connection.is_proven() && !self.has_room_for_client() {
            self.forget_wait(serial, &connection);
            return;
        }
        self.held += held;
        self.put_back(serial, connection);
    }

    fn has_room_for_client(&mut self) -> bool {
        self.clients.len() < self.limits.clients || self.close_idlest() || self.close_waiting()
    }

    /// Returns whether there was a waiting client to close.
    fn close_waiting(&mut self) -> bool {
        let mut clients = self.clients.iter();
        let waiting = clients.find(|(_, client)| client.wait.is_some());
        let Some(serial) = waiting.map(|(serial, _)| *serial) else {
            return false;
        };
        if let Some(client) = self.clients.remove(&serial) {
            self.held -= client.held();
            self.forget_wait(serial, &client);
        }
        true
    }

    fn put_back(&mut self, serial: u64, connection: ServedConnection) {
        let connections = match connection.is_proven() {
            true => {
                self.due = self.due.min(connection.moved + self.limits.idle_time);
                &mut self.clients
            }
            false => &mut self.strangers,
        };
        connections.insert(serial, connection);
    }

    /// Like [`converse`](Self::converse), at the cost of the strangers' budget.
    fn converse_with_stranger(
        &mut self,
        serial: u64,
        connection: &mut ServedConnection,
    ) -> Result<(), StoreFailure> {
        let before = thread_time();
        let conversed = self.converse(serial, connection, true);
        let cost = thread_time().saturating_sub(before);
        if connection.is_proven() {
            self.budget.refund(connection.source, connection.cost);
        } else {
            self.budget.charge(connection.source, cost);
            connection.cost += cost;
        }
        conversed
    }

    /// Reads, answers and writes as far as possible without waiting.
    fn converse(
        &mut self,
        serial: u64,
        connection: &mut ServedConnection,
        is_new: bool,
    ) -> Result<(), StoreFailure> {
        connection.flush()?;
        if !connection.takes_requests() {
            return Ok(());
        }
        connection.read()?;
        if is_new && connection.is_proven() {
            self.check_user(connection)?;
        }
        while connection.takes_requests()
            && let Some(request) = connection.next_request()?
        {
            self.handle(serial, connection, request);
            connection.flush()?;
        }
        connection.flush()
    }

    fn handle(&mut self, serial: u64, connection: &mut ServedConnection, request: StoreRequest) {
        if let Some(why) = request.refusal() {
            return connection.reply(&StoreReply::Refused(why));
        }
        match request {
            StoreRequest::Set { key, value } => {
                let waiters = self.waiters.remove(&key);
                let reply = match self.values.set(key, value) {
                    Ok(()) => StoreReply::Done,
                    Err(why) => StoreReply::Refused(why),
                };
                connection.reply(&reply);
                for waiter in waiters.into_iter().flatten() {
                    self.wake(waiter);
                }
            }
            StoreRequest::Has { key } => {
                connection.reply(&StoreReply::Has(self.values.get(&key).is_some()));
            }
            StoreRequest::Status => match self.status.refusal(&self.access) {
                Some(why) => connection.reply(&StoreReply::Refused(why)),
                None => connection.asks_status = true,
            },
            StoreRequest::Identity => connection.reply(&StoreReply::Identity(self.identity)),
            StoreRequest::Get { keys, wait_millis } => {
                let now = Instant::now();
                connection.wait = Some(PendingRequest {
                    values: Vec::with_capacity(keys.len()),
                    keys,
                    value_bytes: 0,
                    deadline: now + Duration::from_millis(wait_millis.into()),
                    heartbeat: now + HEARTBEAT,
                });
                self.advance(serial, connection);
            }
        }
    }

    /// Continues the request of a client whose key is set now.
    fn wake(&mut self, serial: u64) {
        let Some(mut connection) = self.clients.remove(&serial) else {
            return;
        };
        self.advance(serial, &mut connection);
        match connection.flush() {
            Ok(()) => self.put_back(serial, connection),
            Err(_) => {
                self.held -= connection.held();
                self.forget_wait(serial, &connection);
            }
        }
    }

    /// Takes the available values; replies if they are complete, or if the deadline has passed.
    fn advance(&mut self, serial: u64, connection: &mut ServedConnection) {
        let Some(mut wait) = connection.wait.take() else {
            return;
        };
        while let Some(key) = wait.key() {
            let Some(value) = self.values.get(key) else {
                let missing = key.clone();
                if Instant::now() >= wait.deadline {
                    return connection.reply(&StoreReply::Missing(missing));
                }
                self.due = self.due.min(wait.deadline).min(wait.heartbeat);
                self.waiters.entry(missing).or_default().push(serial);
                connection.wait = Some(wait);
                return;
            };
            wait.value_bytes += value.len();
            if wait.value_bytes > REPLY_BYTES_MAX {
                return connection.reply(&StoreReply::Refused(format!(
                    "the values of the {} keys of one request have more than {REPLY_BYTES_MAX} bytes",
                    wait.keys.len()
                )));
            }
            wait.values.push(value.clone());
        }
        connection.reply_values(wait.values);
    }

    /// Removes a connection from the waiters.
    fn forget_wait(&mut self, serial: u64, connection: &ServedConnection) {
        let Some(key) = connection.wait.as_ref().and_then(PendingRequest::key) else {
            return;
        };
        if let Some(waiters) = self.waiters.get_mut(key) {
            waiters.retain(|waiter| *waiter != serial);
            if waiters.is_empty() {
                self.waiters.remove(key);
            }
        }
    }

    /// Performs actions that are due, and determines the next time.
    fn tend(&mut self, now: Instant) {
        let limits = self.limits.clone();
        let latest = |stranger: &ServedConnection| stranger.moved + limits.stranger_time;
        while (self.strangers.first_key_value()).is_some_and(|(_, oldest)| latest(oldest) <= now) {
            self.close_oldest_stranger();
        }
        self.due = match self.strangers.first_key_value() {
            Some((_, oldest)) => latest(oldest),
            None => now + limits.idle_time,
        };
        let serials: Vec<u64> = self.clients.keys().copied().collect();
        for serial in serials {
            self.tend_client(serial, now);
        }
    }

    fn tend_client(&mut self, serial: u64, now: Instant) {
        let Some(mut connection) = self.clients.remove(&serial) else {
            return;
        };
        let stays = match self.look_after(serial, &mut connection, now) {
            Some(due) => {
                self.due = self.due.min(due);
                connection.flush().is_ok()
            }
            None => false,
        };
        if stays {
            self.clients.insert(serial, connection);
        } else {
            self.held -= connection.held();
            self.forget_wait(serial, &connection);
        }
    }

    /// When to check again; `None` if the connection must be closed.
    fn look_after(
        &mut self,
        serial: u64,
        connection: &mut ServedConnection,
        now: Instant,
    ) -> Option<Instant> {
        let quiet = connection.moved + self.limits.idle_time;
        if quiet <= now {
            return None;
        }
        let flushed = connection.is_flushed();
        let Some(wait) = &mut connection.wait else {
            return Some(quiet);
        };
        if wait.deadline <= now {
            self.forget_wait(serial, connection);
            self.advance(serial, connection);
            return Some(quiet);
        }
        if wait.heartbeat <= now {
            wait.heartbeat = now + HEARTBEAT;
            if flushed {
                connection.reply(&StoreReply::Waiting);
            }
        }
        let wait = connection.wait.as_ref()?;
        Some(quiet.min(wait.deadline).min(wait.heartbeat))
    }
}
