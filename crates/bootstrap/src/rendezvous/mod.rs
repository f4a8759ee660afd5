//! Rendezvous of the ranks of a new group, and detection of ranks that share memory.

mod exchange;
mod hosts;
pub(super) mod roster;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_call::Error;
use weft_transport::{LinkError, Presence, TransportKind};

use super::domains::Domain;
use super::endpoint::{Endpoint, EndpointAddress, TransportAddress};
use super::group_terms::{GroupTerms, Profile};
use super::round_trip::{self, MeasuredRoundTrips};
use super::store::Store;
use exchange::{Exchange, MeetingRefusal, Topic, to_bytes, unreadable};
pub use hosts::Unshared;
use hosts::{HostPlacement, HostProbe, Refused};
use roster::{Common, RankHello, Roster};

/// The longest attempt at a link.
const PROBE: Duration = Duration::from_secs(5);

/// The deadline of an attempt at a link that starts at `now`. An attempt that fails must not use up
/// the whole deadline: other ranks wait for its result, and the reason is only published
/// afterwards.
fn end_of_probe(now: Instant, deadline: Instant) -> Instant {
    now + PROBE.min(deadline.saturating_duration_since(now) / 2)
}

/// A rank of the group, as every rank knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// How to connect to it.
    pub address: EndpointAddress,
    /// The lowest rank that shares memory with it: itself, or one that it has a link to.
    pub host: u32,
    /// The parts of its host that contain it.
    pub domain: Domain,
}

/// The data on which all ranks of a new group agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// Distinguishes groups: random, the same on all ranks.
    pub group_id: u64,
    /// The ranks, in order.
    pub members: Vec<Member>,
    /// Rank 0's profiles for choosing algorithms.
    pub profiles: Vec<Profile>,
    /// The longest round-trip time of a short message between two hosts; 0 where nothing crosses a
    /// network.
    pub round_trip: Duration,
    /// Ranks of one machine that share no memory, the first ones if there are many.
    pub unshared: Vec<Unshared>,
}

impl Meeting {
    /// The agreement of some of the ranks, renumbered in the order given, without another exchange.
    /// The group's identity stays as it is.
    pub fn of_ranks(&self, ranks: &[u32]) -> Meeting {
        let host_of = |rank: &u32| self.members[*rank as usize].host;
        let one_host = (ranks.iter()).all(|rank| host_of(rank) == host_of(&ranks[0]));
        let members = ranks.iter().map(|rank| {
            let first = ranks
                .iter()
                .position(|other| host_of(other) == host_of(rank));
            Member {
                host: first.unwrap_or_default() as u32,
                ..self.members[*rank as usize].clone()
            }
        });
        Meeting {
            group_id: self.group_id,
            members: members.collect(),
            profiles: self.profiles.clone(),
            round_trip: match one_host {
                true => Duration::ZERO,
                false => self.round_trip,
            },
            // All ranks were informed at the rendezvous.
            unshared: vec![],
        }
    }

    /// The number of ranks of each host, in the order of their lowest ranks.
    pub fn ranks_per_host(&self) -> Vec<u32> {
        let mut counts = std::collections::BTreeMap::new();
        for member in &self.members {
            *counts.entry(member.host).or_insert(0) += 1;
        }
        counts.into_values().collect()
    }

    /// Whether all ranks share memory.
    fn shares_memory(&self) -> bool {
        (1..self.members.len() as u32).all(|rank| self.maps(0, rank))
    }

    /// Whether two ranks reach each other's pools with loads and stores.
    pub fn maps(&self, a: u32, b: u32) -> bool {
        a == b || self.joined_by(a, b).maps
    }

    /// The kind of link between two ranks.
    pub fn kind(&self, a: u32, b: u32) -> TransportKind {
        self.joined_by(a, b).kind
    }

    /// The transport between two ranks: all ranks have the same ones.
    fn joined_by(&self, a: u32, b: u32) -> &TransportAddress {
        let [a, b] = [a, b].map(|rank| &self.members[rank as usize]);
        let best = match a.host == b.host {
            true => a.address.best(true).or(a.address.best(false)),
            false => a.address.best(false),
        };
        best.unwrap_or(&a.address.transports[0])
    }
}

/// One rank's view of a rendezvous under way.
struct Visit<'a> {
    endpoint: &'a Endpoint,
    exchange: Exchange<'a>,
}

/// Meets the other ranks: publishes this endpoint's address, learns theirs, and determines with
/// real links which ranks share memory.
///
/// Every rank of the new group calls it with the same size and with a store that is used for this
/// purpose only.
///
/// # Errors
/// [`Error::Timeout`] that names missing ranks; [`Error::Config`] if ranks differ in version,
/// options or job; [`Error::Auth`] for a process of another user; [`Error::Aborted`] if another
/// rank has failed or `cancel` is true; or an error of the store.
pub fn meet(
    endpoint: &Endpoint,
    store: &dyn Store,
    rank: u32,
    size: u32,
    terms: GroupTerms,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<Meeting, Error> {
    if rank >= size {
        return Err(Error::Config(format!(
            "rank is {rank}, but there are only {size} ranks: it must be 0..{size}"
        )));
    }
    let visit = Visit {
        endpoint,
        exchange: Exchange::new(store, (rank, size), deadline, cancel),
    };
    let met = endpoint.begin_meeting().and_then(|()| visit.meet(terms));
    endpoint.end_meeting(met.as_ref().ok().map(Meeting::shares_memory));
    met.inspect_err(|error| visit.exchange.call_off(error))
}

/// Ends the rendezvous of a rank that cannot join it: ranks that wait for it receive the reason.
/// The arguments are as for [`meet`].
pub fn fail_meeting(store: &dyn Store, rank: u32, size: u32, error: &Error, cancel: &AtomicBool) {
    Exchange::new(store, (rank, size), Instant::now(), cancel).call_off(error);
}

impl Visit<'_> {
    fn meet(&self, terms: GroupTerms) -> Result<Meeting, Error> {
        let roster = self.exchange_addresses(terms)?;
        let (group_id, profiles) = (roster.group_id, roster.profiles.clone());
        let (mut addresses, domains): (Vec<_>, Vec<_>) = roster.members().unzip();
        self.check_own(&addresses)?;
        keep_common(&mut addresses);
        check_endpoints(&addresses)?;
        check_transports(&addresses)?;
        addresses
            .iter()
            .try_for_each(|address| self.endpoint.admit(address))?;
        let HostPlacement { hosts, unshared } = self.exchange_hosts(&addresses)?;
        check_reachable(&addresses, &hosts)?;
        let round_trip = self.exchange_round_trips(&addresses, &hosts)?;
        let members = addresses.into_iter().zip(hosts).zip(domains);
        let member = |((address, host), domain)| Member {
            address,
            host,
            domain,
        };
        Ok(Meeting {
            group_id,
            members: members.map(member).collect(),
            profiles,
            round_trip,
            unshared,
        })
    }

    fn exchange_addresses(&self, terms: GroupTerms) -> Result<Roster, Error> {
        let common = Common::new(self.exchange.size, self.endpoint.encryption(), &terms);
        let mine = RankHello::new(common, &self.endpoint.address(), terms.domain);
        let answer = match self.exchange.rank {
            0 => {
                self.present(&mine)?;
                let id = random_group_id()?;
                let make = |hellos: &[Vec<u8>]| {
                    let roster = Roster::make(id, &mine, terms.profiles, hellos)?;
                    Ok(roster.to_bytes())
                };
                self.exchange.answer_all(Topic::Address, make)?
            }
            own => {
                // Before anything is published: another job's rendezvous continues as if no rank
                // had joined.
                let first = self.exchange.first(Topic::Address)?;
                let job = mine.check_job(&first);
                job.inspect_err(|_| self.exchange.abandon())?;
                self.present(&mine)?;
                // Immediately, even if others join much later.
                mine.check_first(&first, own)?;
                self.exchange.read_answer(Topic::Address)?
            }
        };
        Roster::read(&answer, self.exchange.size)
    }

    /// Publishes this rank's hello, unless another process has joined under its number.
    fn present(&self, mine: &RankHello) -> Result<(), Error> {
        let (rank, mine_bytes) = (self.exchange.rank, mine.to_bytes());
        let published = self.exchange.publish(Topic::Address, mine_bytes.clone());
        published.map_err(|error| {
            let other = self
                .exchange
                .published_by_other(Topic::Address, &mine_bytes);
            other.map_or(error, |other| mine.joined_twice(rank, &other))
        })
    }

    /// Some stores let a second process replace the value that the first has published under the
    /// same number.
    fn check_own(&self, addresses: &[EndpointAddress]) -> Result<(), Error> {
        let (rank, own) = (self.exchange.rank, self.endpoint.address());
        let listed = &addresses[rank as usize];
        match listed.id == own.id {
            true => Ok(()),
            false => Err(roster::joined_twice(rank, listed, &own)),
        }
    }

    /// The host of every rank. See [`Member::host`].
    fn exchange_hosts(&self, addresses: &[EndpointAddress]) -> Result<HostPlacement, Error> {
        if addresses[0].best(true).is_none() {
            return Ok(HostPlacement {
                hosts: (0..self.exchange.size).collect(),
                unshared: vec![],
            });
        }
        let mine = self.find_neighbour(addresses)?;
        self.exchange.publish(Topic::Host, to_bytes(&mine))?;
        let answer = match self.exchange.rank {
            0 => (self.exchange).answer_all(Topic::Host, |values| settle_hosts(values, addresses)),
            _ => self.exchange.read_answer(Topic::Host),
        };
        let placed: HostPlacement = postcard::from_bytes(&answer?).unwrap_or_default();
        match placed.hosts.len() == addresses.len() {
            true => Ok(placed),
            false => Err(unreadable(0)),
        }
    }

    /// A lower rank to which this one has a memory-sharing link: its parent if possible, else the
    /// lowest.
    fn find_neighbour(&self, addresses: &[EndpointAddress]) -> Result<HostProbe, Error> {
        let Exchange { rank, cancel, .. } = self.exchange;
        let mut found = HostProbe {
            neighbour: rank,
            refused: None,
            required: self.endpoint.requires_shared_memory(),
        };
        let mine = self.endpoint.address();
        let Some(TransportAddress { kind, .. }) = mine.best(true) else {
            return Ok(found);
        };
        for other in hosts::candidates(addresses, rank) {
            let until = end_of_probe(Instant::now(), self.exchange.deadline);
            let address = &addresses[other as usize];
            match self.endpoint.try_link(address, *kind, until, cancel)? {
                Ok(_) => {
                    found.neighbour = other;
                    break;
                }
                Err(LinkError::Cancelled) => return Err(Error::cancelled()),
                Err(LinkError::OtherUser(why)) if !self.exchange.store.is_authenticated() => {
                    return Err(other_user((rank, other), &address.host_name, &why));
                }
                // The parent is the first that is tried.
                Err(error) => found.refused = found.refused.or(Some(Refused::by(&error))),
            }
        }
        Ok(found)
    }

    /// The round trip on which all ranks agree. See [`Meeting::round_trip`].
    fn exchange_round_trips(
        &self,
        addresses: &[EndpointAddress],
        hosts: &[u32],
    ) -> Result<Duration, Error> {
        if hosts.iter().all(|host| *host == hosts[0]) {
            return Ok(Duration::ZERO);
        }
        let Exchange { rank, size, .. } = self.exchange;
        let measure = |other: u32| match hosts[other as usize] == hosts[rank as usize] {
            true => Ok(None),
            false => self.measure_round_trip(&addresses[other as usize]),
        };
        let mine = MeasuredRoundTrips {
            before: measure((rank + size - 1) % size)?,
            after: measure((rank + 1) % size)?,
        };
        let answer =
            (self.exchange).settle(Topic::RoundTrip, to_bytes(&mine), settle_round_trips)?;
        postcard::from_bytes(&answer).map_err(|_| unreadable(0))
    }

    /// The round trip to a rank on another host in microseconds, over the link that the group will
    /// need. A later failure of that link reports why there is none.
    fn measure_round_trip(&self, address: &EndpointAddress) -> Result<Option<u32>, Error> {
        let Some(TransportAddress { kind, .. }) = address.best(false) else {
            return Ok(None);
        };
        let until = end_of_probe(Instant::now(), self.exchange.deadline);
        match (self.endpoint).try_link(address, *kind, until, self.exchange.cancel)? {
            Ok(link) => Ok(match link.presence() {
                Presence::Unknown { round_trip } => round_trip.as_micros().try_into().ok(),
                Presence::Away { .. } | Presence::Inside { .. } => None,
            }),
            Err(LinkError::Cancelled) => Err(Error::cancelled()),
            Err(_) => Ok(None),
        }
    }
}

/// The error of a rendezvous with a process of another user, which has not proven that it belongs
/// to the job.
fn other_user((rank, other): (u32, u32), host: &str, why: &str) -> Error {
    Error::Auth(format!(
        "rank {rank} shares no memory with rank {other}, which runs on {host}, too, but as another user: {why}. As the \
         store where they meet admits every process, TCP is not used instead. Run all ranks as one user; or have them \
         meet at weft's own store with a secret (WEFT_SECRET); or choose transport \"tcp\", if only trusted processes \
         reach the store"
    ))
}

/// Rank 0's answer on hosts: the host of every rank.
fn settle_hosts(
    values: &[Vec<u8>],
    addresses: &[EndpointAddress],
) -> Result<Vec<u8>, Box<MeetingRefusal>> {
    let found = (0..).zip(values).map(|(rank, bytes)| {
        let found: Result<HostProbe, _> = postcard::from_bytes(bytes);
        found.map_err(|_| unreadable(rank))
    });
    let found: Vec<HostProbe> = found.collect::<Result<_, _>>()?;
    Ok(to_bytes(&HostPlacement::of(&found, addresses)?))
}

/// Rank 0's answer on round trips: the agreed one.
fn settle_round_trips(values: &[Vec<u8>]) -> Vec<u8> {
    let measured = values.iter().map(|bytes| postcard::from_bytes(bytes));
    let measured: Vec<_> = measured.map(Result::unwrap_or_default).collect();
    to_bytes(&round_trip::agreed(&measured))
}

fn random_group_id() -> Result<u64, Error> {
    let bytes = weft_transport::random();
    let bytes = bytes.map_err(|error| Error::Internal(format!("no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}

/// An endpoint is one rank: it has no link to itself.
fn check_endpoints(addresses: &[EndpointAddress]) -> Result<(), Error> {
    for (rank, address) in addresses.iter().enumerate() {
        let same = |other: &EndpointAddress| other.id == address.id;
        if let Some(first) = addresses[..rank].iter().position(same) {
            return Err(Error::Config(format!(
                "ranks {first} and {rank} have one endpoint, in process {} on {}: threads that are ranks need an endpoint \
                 each. Choose transport \"loopback\", or pass every rank an endpoint of its own",
                address.pid, address.host_name
            )));
        }
    }
    Ok(())
}

/// Removes optional transports that some ranks lack.
fn keep_common(addresses: &mut [EndpointAddress]) {
    let all: Vec<Vec<TransportKind>> = (addresses.iter())
        .map(|address| address.kinds().collect())
        .collect();
    let common = |kind| all.iter().all(|kinds| kinds.contains(&kind));
    for address in addresses {
        (address.transports).retain(|transport| !transport.optional || common(transport.kind));
    }
}

fn check_transports(addresses: &[EndpointAddress]) -> Result<(), Error> {
    let names = |address: &EndpointAddress| {
        let kinds: Vec<String> = address.kinds().map(|kind| kind.to_string()).collect();
        kinds.join("+")
    };
    let first = names(&addresses[0]);
    for (rank, address) in addresses.iter().enumerate() {
        let own = names(address);
        if own != first {
            return Err(Error::Config(format!(
                "rank {rank} on {} uses transport {own}, rank 0 on {} {first}: choose the same everywhere",
                address.host_name, addresses[0].host_name
            )));
        }
    }
    Ok(())
}

/// Without a transport that reaches every rank, all ranks must share memory.
fn check_reachable(addresses: &[EndpointAddress], hosts: &[u32]) -> Result<(), Error> {
    if addresses[0].best(false).is_some() {
        return Ok(());
    }
    match hosts.iter().position(|&host| host != 0) {
        None => Ok(()),
        Some(rank) => Err(Error::Config(format!(
            "rank {rank} on {} shares no memory with rank 0 on {}, and no other transport is allowed: \
             choose transport \"auto\" or \"tcp\"",
            addresses[rank].host_name, addresses[0].host_name
        ))),
    }
}

#[cfg(test)]
mod counted;
#[cfg(test)]
mod tests;
