//! Lookup of the addresses of a `host:port`, bounded in time although the C library's is not.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::failed;
use weft_transport::fork::AboveStandardStreams;

const CANCEL_POLL: Duration = Duration::from_millis(40);

/// A lookup of one `host:port`. The host is a name, an IPv4 address, or an IPv6 address, which may
/// be in brackets and have a scope: `[fe80::1%eth0]:29500`.
///
/// `getaddrinfo` waits as long as the resolver's configuration says, up to minutes where no name
/// server answers, and nothing interrupts it. So a thread of its own calls it, which ends when the
/// name service does.
pub struct Lookup {
    host: String,
    port: u16,
    pending: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
}

impl Lookup {
    /// A lookup of `target`, which has not begun.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the target is no `host:port`.
    pub fn new(target: &str) -> io::Result<Self> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidInput, "expected host:port");
        let (host, port) = target.rsplit_once(':').ok_or_else(malformed)?;
        Ok(Self {
            host: without_brackets(host).into(),
            port: port.parse().map_err(|_| malformed())?,
            pending: None,
        })
    }

    /// The addresses, once they are known; a lookup that is under way continues.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the name service has not answered at `deadline`, or when `cancel` becomes
    /// true: call again to wait longer. Its failures otherwise; the next call asks it again.
    pub fn wait(&mut self, deadline: Instant, cancel: &AtomicBool) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => self.begin()?,
        };
        let found = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match pending.recv_timeout(CANCEL_POLL.min(left)) {
                Ok(found) => break found,
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(io::Error::other("its thread ended"));
                }
                Err(RecvTimeoutError::Timeout)
                    if left.is_zero() || cancel.load(Ordering::Relaxed) =>
                {
                    self.pending = Some(pending);
                    let silent = "the name service has not answered";
                    break Err(io::Error::new(io::ErrorKind::TimedOut, silent));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        found.map_err(|error| failed(format!("resolving {}", self.host), error))
    }

    fn begin(&self) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
        let (sender, receiver) = sync_channel(1);
        let (host, port) = (self.host.clone(), self.port);
        let look_up = move || {
            // The C library asks over sockets and files.
            let found = AboveStandardStreams::new()
                .and_then(|_above| Ok((host.as_str(), port).to_socket_addrs()?.collect()));
            // Fails where nobody waits any more.
            let _ = sender.send(found);
        };
        let builder = thread::Builder::new().name("weft-lookup".into());
        let started = builder.spawn(look_up);
        started.map_err(|error| failed("starting the thread weft-lookup", error))?;
        Ok(receiver)
    }
}

pub(crate) fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}
