//! Rendezvous of the ranks of a new group, and detection of ranks that share memory.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_transport::{LinkError, Presence, TransportKind};

use super::domains::Domain;
use super::endpoint::{Endpoint, EndpointAddress, TransportAddress};
use super::round_trip::{self, MeasuredRoundTrips};
use super::store::Store;
use super::terms::{Formats, Policy, Profile, Terms};
use crate::Error;

/// A failing link between two ranks that share a boot must not eat the whole deadline.
const PROBE: Duration = Duration::from_secs(5);

/// A rank of the group, as every rank knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// How to connect to it.
    pub address: EndpointAddress,
    /// The lowest rank that shares memory with it: itself, or one that it has a link to.
    pub host: u32,
    /// The parts of its host that it lies in.
    pub domain: Domain,
}

/// What all ranks of a new group agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meeting {
    /// Tells groups apart: random, the same on all ranks.
    pub group_id: u64,
    /// The ranks, in order.
    pub members: Vec<Member>,
    /// What rank 0 brought to choose algorithms by.
    pub profiles: Vec<Profile>,
    /// How long a short message between two hosts takes, there and back, where that is longest; 0
    /// where nothing crosses a network.
    pub round_trip: Duration,
}

impl Meeting {
    /// What some of the ranks, renumbered in the order given, agree on without another word. The
    /// group's identity stays as it is.
    pub(crate) fn of_ranks(&self, ranks: &[u32]) -> Meeting {
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
        }
    }

    /// For each host, in the order of their lowest ranks, the number of its ranks.
    pub(crate) fn ranks_per_host(&self) -> Vec<u32> {
        let mut counts = std::collections::BTreeMap::new();
        for member in &self.members {
            *counts.entry(member.host).or_insert(0) += 1;
        }
        counts.into_values().collect()
    }

    /// Whether two ranks reach each other's pools with loads and stores.
    pub(crate) fn maps(&self, a: u32, b: u32) -> bool {
        a == b || self.joined_by(a, b).maps
    }

    /// The kind of link that joins two ranks.
    pub fn kind(&self, a: u32, b: u32) -> TransportKind {
        self.joined_by(a, b).kind
    }

    /// The transport that joins two ranks: all ranks have the same ones.
    fn joined_by(&self, a: u32, b: u32) -> &TransportAddress {
        let [a, b] = [a, b].map(|rank| &self.members[rank as usize]);
        let best = match a.host == b.host {
            true => a.address.best(true).or(a.address.best(false)),
            false => a.address.best(false),
        };
        best.unwrap_or(&a.address.transports[0])
    }
}

/// What a rank publishes first.
#[derive(Serialize, Deserialize)]
pub(super) struct RankHello {
    version: String,
    formats: Formats,
    size: u32,
    group_id: u64,
    address: Vec<u8>,
    policy: Policy,
    profiles: Vec<Profile>,
    domain: Domain,
}

/// What the ranks have published first.
struct Published {
    group_id: u64,
    profiles: Vec<Profile>,
    addresses: Vec<EndpointAddress>,
    domains: Vec<Domain>,
}

/// One rank's view of a rendezvous under way.
struct Visit<'a> {
    endpoint: &'a Endpoint,
    store: &'a dyn Store,
    rank: u32,
    size: u32,
    deadline: Instant,
    cancel: &'a AtomicBool,
    /// How many of the topics this rank has published something under.
    published: Cell<usize>,
}

/// What ranks publish, in this order. Not every meeting has all of them.
const TOPICS: [&str; 3] = ["address", "host", "round-trip"];

/// What a rank publishes under a topic.
#[derive(Serialize, Deserialize)]
enum Told {
    Value(Vec<u8>),
    /// It cannot go on, and why.
    Failed(String),
}

impl Told {
    fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("writing to memory does not fail")
    }
}

/// Meets the other ranks: publishes this endpoint's address, learns theirs, and finds out with real
/// links who shares memory.
///
/// Every rank of the new group calls it with the same size and with a store that is used for this
/// purpose only.
pub(crate) fn meet(
    endpoint: &Endpoint,
    store: &dyn Store,
    rank: u32,
    size: u32,
    terms: Terms,
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
        store,
        rank,
        size,
        deadline,
        cancel,
        published: Cell::new(0),
    };
    visit.meet(terms).inspect_err(|error| visit.call_off(error))
}

impl Visit<'_> {
    fn meet(&self, terms: Terms) -> Result<Meeting, Error> {
        let published = self.exchange_addresses(terms)?;
        let addresses = published.addresses;
        check_endpoints(&addresses)?;
        check_transports(&addresses)?;
        addresses
            .iter()
            .try_for_each(|address| self.endpoint.admit(address))?;
        let hosts = self.exchange_hosts(&addresses)?;
        check_reachable(&addresses, &hosts)?;
        let round_trip = self.exchange_round_trips(&addresses, &hosts)?;
        let members = addresses.into_iter().zip(hosts).zip(published.domains);
        let member = |((address, host), domain)| Member {
            address,
            host,
            domain,
        };
        Ok(Meeting {
            group_id: published.group_id,
            members: members.map(member).collect(),
            profiles: published.profiles,
            round_trip,
        })
    }

    /// Publishes why this rank fails, in place of what the others wait for.
    fn call_off(&self, error: &Error) {
        let told = Told::Failed(error.to_string());
        for topic in &TOPICS[self.published.get()..] {
            // A store that fails has failed for everybody.
            let _ = self
                .store
                .set(&format!("{topic}/{}", self.rank), &told.to_bytes());
        }
    }

    fn exchange_addresses(&self, terms: Terms) -> Result<Published, Error> {
        let counts = self.rank == 0;
        let mine = RankHello {
            version: env!("CARGO_PKG_VERSION").into(),
            formats: terms.formats,
            size: self.size,
            group_id: random_group_id()?,
            address: self.endpoint.address().to_bytes(),
            policy: terms.policy.told(),
            profiles: terms.profiles.into_iter().filter(|_| counts).collect(),
            domain: terms.domain,
        };
        let bytes = postcard::to_stdvec(&mine).expect("writing to memory does not fail");
        let mut hellos = Vec::with_capacity(self.size as usize);
        for (rank, bytes) in self.exchange("address", &bytes)?.iter().enumerate() {
            hellos.push(read_hello(&mine, self.rank, rank, bytes)?);
        }
        let addresses = hellos
            .iter()
            .map(|hello| EndpointAddress::from_bytes(&hello.address));
        let addresses = addresses.collect::<Result<_, _>>()?;
        let domains = hellos.iter().map(|hello| hello.domain).collect();
        let first = hellos.swap_remove(0);
        Ok(Published {
            group_id: first.group_id,
            profiles: first.profiles,
            addresses,
            domains,
        })
    }

    /// The host of every rank. See [`Member::host`].
    fn exchange_hosts(&self, addresses: &[EndpointAddress]) -> Result<Vec<u32>, Error> {
        if addresses[0].best(true).is_none() {
            return Ok((0..self.size).collect());
        }
        let mine = self.find_host(addresses)?;
        let published = self.exchange("host", &mine.to_le_bytes())?;
        let hosts: Vec<u32> = published
            .iter()
            .map(|bytes| {
                bytes
                    .as_slice()
                    .try_into()
                    .map_or(u32::MAX, u32::from_le_bytes)
            })
            .collect();
        // Where sharing is not transitive (the host found has found another one), a rank counts as
        // a host of its own.
        let agreed = hosts.iter().enumerate().map(|(rank, &host)| {
            let settled = hosts.get(host as usize) == Some(&host);
            if settled { host } else { rank as u32 }
        });
        Ok(agreed.collect())
    }

    /// The lowest rank that this one has a memory-sharing link to, or itself.
    fn find_host(&self, addresses: &[EndpointAddress]) -> Result<u32, Error> {
        let mine = self.endpoint.address();
        let Some(TransportAddress { kind, .. }) = mine.best(true) else {
            return Ok(self.rank);
        };
        for (rank, address) in addresses[..self.rank as usize].iter().enumerate() {
            if address.boot_id != mine.boot_id {
                continue;
            }
            let until = self.deadline.min(Instant::now() + PROBE);
            match self.endpoint.try_link(address, *kind, until, self.cancel)? {
                Ok(_) => return Ok(rank as u32),
                Err(LinkError::Cancelled) => return Err(Error::cancelled()),
                Err(_) => {}
            }
        }
        Ok(self.rank)
    }

    /// The round trip that all ranks agree on. See [`Meeting::round_trip`].
    fn exchange_round_trips(
        &self,
        addresses: &[EndpointAddress],
        hosts: &[u32],
    ) -> Result<Duration, Error> {
        if hosts.iter().all(|host| *host == hosts[0]) {
            return Ok(Duration::ZERO);
        }
        let (rank, size) = (self.rank, self.size);
        let measure = |other: u32| match hosts[other as usize] == hosts[rank as usize] {
            true => Ok(None),
            false => self.measure_round_trip(&addresses[other as usize]),
        };
        let mine = MeasuredRoundTrips {
            before: measure((rank + size - 1) % size)?,
            after: measure((rank + 1) % size)?,
        };
        let bytes = postcard::to_stdvec(&mine).expect("writing to memory does not fail");
        let published = self.exchange("round-trip", &bytes)?;
        let measured = published.iter().map(|bytes| postcard::from_bytes(bytes));
        let measured: Vec<_> = measured.map(Result::unwrap_or_default).collect();
        Ok(round_trip::agreed(&measured))
    }

    /// The round trip to a rank on another host in microseconds, of the link that the group will
    /// need. Whoever needs it tells why there is none.
    fn measure_round_trip(&self, address: &EndpointAddress) -> Result<Option<u32>, Error> {
        let Some(TransportAddress { kind, .. }) = address.best(false) else {
            return Ok(None);
        };
        let until = self.deadline.min(Instant::now() + PROBE);
        match self.endpoint.try_link(address, *kind, until, self.cancel)? {
            Ok(link) => Ok(match link.presence() {
                Presence::Unknown { round_trip } => round_trip.as_micros().try_into().ok(),
                Presence::Away { .. } | Presence::Inside { .. } => None,
            }),
            Err(LinkError::Cancelled) => Err(Error::cancelled()),
            Err(_) => Ok(None),
        }
    }

    /// Publishes this rank's value under a topic, and returns every rank's.
    fn exchange(&self, topic: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let value = Told::Value(mine.into());
        let place = TOPICS.iter().position(|known| *known == topic);
        self.published
            .set(place.map_or(TOPICS.len(), |place| place + 1));
        self.store
            .set(&format!("{topic}/{}", self.rank), &value.to_bytes())?;
        let started = Instant::now();
        let keys: Vec<String> = (0..self.size)
            .map(|rank| format!("{topic}/{rank}"))
            .collect();
        let values = self.store.multi_get(&keys, self.deadline, self.cancel);
        let values = values.map_err(|error| match error {
            Error::Timeout { .. } => self.missing(&keys, started.elapsed()),
            other => other,
        })?;
        (0..self.size)
            .zip(values)
            .map(|(rank, bytes)| match postcard::from_bytes(&bytes) {
                Ok(Told::Value(value)) => Ok(value),
                Ok(Told::Failed(why)) => {
                    // All ranks read this.
                    self.published.set(TOPICS.len());
                    let reason = format!("the rendezvous failed on rank {rank}: {why}");
                    Err(Error::Aborted { reason })
                }
                Err(_) => Err(unreadable(rank as usize)),
            })
            .collect()
    }

    fn missing(&self, keys: &[String], after: Duration) -> Error {
        let absent = |key: &String| matches!(self.store.has(key), Ok(false));
        let missing: Vec<u32> = (0..self.size)
            .zip(keys)
            .filter(|(_, key)| absent(key))
            .map(|(rank, _)| rank)
            .collect();
        Error::Timeout {
            operation: "rendezvous".into(),
            waiting_for: format!("{} of {}", name_ranks(&missing), self.size),
            after,
        }
    }
}

fn random_group_id() -> Result<u64, Error> {
    let bytes = weft_transport::random();
    let bytes = bytes.map_err(|error| Error::Internal(format!("no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}

fn unreadable(rank: usize) -> Error {
    Error::Config(format!(
        "what rank {rank} published at the rendezvous cannot be read. Does it run the same version of weft?"
    ))
}

fn read_hello(mine: &RankHello, own: u32, rank: usize, bytes: &[u8]) -> Result<RankHello, Error> {
    let hello: RankHello = postcard::from_bytes(bytes).map_err(|_| unreadable(rank))?;
    if hello.version != mine.version {
        return Err(Error::Config(format!(
            "rank {rank} runs weft {}, this rank {}: install the same version everywhere",
            hello.version, mine.version
        )));
    }
    (hello.formats).same_as(mine.formats, (rank, own))?;
    if hello.size != mine.size {
        return Err(Error::Config(format!(
            "rank {rank} expects {} ranks, this rank {}: the world size must be the same everywhere",
            hello.size, mine.size
        )));
    }
    hello.policy.same_as(&mine.policy, rank)?;
    Ok(hello)
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

/// Without a transport that reaches everybody, all ranks must share memory.
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

/// "rank 2", "ranks 2, 5", "ranks 2, 5, 6 ... 900 (600 in all)".
fn name_ranks(ranks: &[u32]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    match ranks {
        [] => "the last of the ranks".into(),
        [one] => format!("rank {one}"),
        [.., last] if ranks.len() > SHOWN => {
            format!(
                "ranks {} ... {last} ({} in all)",
                shown.join(", "),
                ranks.len()
            )
        }
        _ => format!("ranks {}", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
