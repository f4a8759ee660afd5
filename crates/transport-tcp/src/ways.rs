//! Ways to a peer, over its networks and this end's, and connections over the first that works.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use weft_transport::LinkError;
use weft_transport::fork::Descriptor;

use crate::address::TcpAddress;
use crate::patience::Patience;
use crate::socket::{Connecting, poll, poll_entry};

/// How long a way may not answer before the next one is tried as well.
pub(crate) const STAGGER: Duration = Duration::from_millis(150);
/// How soon a cancelled attempt ends.
const CANCEL_POLL: Duration = Duration::from_millis(30);

/// A way to a peer: one of its addresses, and the own address to bind, if the route does not
/// select that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub(crate) source: Option<IpAddr>,
    pub(crate) target: SocketAddr,
}

impl Way {
    /// The way over the network whose turn it is.
    pub(crate) fn over(number: usize, own: &TcpAddress, peer: &TcpAddress) -> Option<Way> {
        let target = peer.in_network(number.checked_rem(peer.networks())?)?;
        let source = match own.networks() {
            0 | 1 => None,
            networks => own.in_network(number % networks),
        };
        let source = source.map(|address| address.ip());
        Some(Way {
            source: source.filter(|ip| ip.is_ipv4() == target.is_ipv4()),
            target,
        })
    }

    /// All ways: over each network, from this one on, and then to the peer's other addresses.
    pub(crate) fn all(first: usize, own: &TcpAddress, peer: &TcpAddress) -> Vec<Way> {
        let networks = networks(own, peer);
        let over_each = (first..first + networks).filter_map(|number| Way::over(number, own, peer));
        let mut ways: Vec<Way> = Vec::new();
        for way in over_each {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        for target in peer.sockets() {
            if ways.iter().all(|way| way.target != target) {
                ways.push(Way {
                    source: None,
                    target,
                });
            }
        }
        ways
    }

    /// Whether a connection between these addresses goes this way.
    pub(crate) fn is_between(&self, (own, peer): (IpAddr, IpAddr)) -> bool {
        self.target.ip() == peer && self.source.is_none_or(|source| source == own)
    }
}

/// The number of networks between two endpoints.
pub(crate) fn networks(own: &TcpAddress, peer: &TcpAddress) -> usize {
    own.networks().max(peer.networks())
}

/// Connects over the first way that answers. They are tried in their order: each as soon as those
/// before it have failed, or not answered for a moment. If the last has been tried and one has been
/// refused, the others get no more time than `after_refusal`.
///
/// # Errors
/// [`LinkError::Absent`] if none answers, and nothing listens at the end of one of them; otherwise
/// the reason of the last.
pub(crate) fn connect_any(
    ways: &[Way],
    after_refusal: Duration,
    patience: Patience<'_>,
) -> Result<Descriptor<TcpStream>, LinkError> {
    let mut race = Race::default();
    let mut ways = ways.iter();
    let mut started = Instant::now();
    loop {
        while race.connecting.is_empty() || started.elapsed() >= STAGGER {
            match ways.next() {
                Some(way) => race.start(way),
                None => break,
            }
            started = Instant::now();
        }
        let all_started = ways.len() == 0;
        let until = match (all_started, &race.refused) {
            (true, None) => patience.deadline,
            (true, Some(_)) => patience.deadline.min(started + after_refusal),
            (false, _) => patience.deadline.min(started + STAGGER),
        };
        if let Some(connected) = race.wait(until)? {
            return Ok(connected);
        }
        let over = all_started && (race.connecting.is_empty() || Instant::now() >= until);
        if over || Instant::now() >= patience.deadline {
            return Err(race.failure());
        }
        if patience.is_cancelled() {
            return Err(LinkError::Cancelled);
        }
    }
}

/// Attempts to connect that are under way, and how the others failed.
#[derive(Default)]
struct Race {
    connecting: Vec<Connecting>,
    refused: Option<LinkError>,
    failed: Option<LinkError>,
}

impl Race {
    fn start(&mut self, way: &Way) {
        match Connecting::start(way.source, way.target) {
            Ok(connecting) => self.connecting.push(connecting),
            Err(error) => self.note(error),
        }
    }

    fn note(&mut self, error: LinkError) {
        match error {
            LinkError::Absent(_) => self.refused = Some(error),
            error => self.failed = Some(error),
        }
    }

    /// Waits until one is connected, or for a moment.
    fn wait(&mut self, until: Instant) -> Result<Option<Descriptor<TcpStream>>, LinkError> {
        let entries = (self.connecting.iter())
            .map(|connecting| poll_entry(connecting.descriptor(), libc::POLLOUT));
        let mut entries: Vec<libc::pollfd> = entries.collect();
        let left = until.saturating_duration_since(Instant::now());
        if entries.is_empty() || poll(&mut entries, left.min(CANCEL_POLL))? == 0 {
            return Ok(None);
        }
        let mut ready = entries.iter().map(|entry| entry.revents != 0);
        let ended = self
            .connecting
            .extract_if(.., |_| ready.next() == Some(true));
        let ended: Vec<Connecting> = ended.collect();
        for connecting in ended {
            match connecting.finish() {
                Ok(connected) => return Ok(Some(connected)),
                Err(error) => self.note(error),
            }
        }
        Ok(None)
    }

    fn failure(&mut self) -> LinkError {
        let silent = || LinkError::TimedOut("the peer did not answer".into());
        let failed = || self.failed.take();
        (self.refused.take()).or_else(failed).unwrap_or_else(silent)
    }
}
