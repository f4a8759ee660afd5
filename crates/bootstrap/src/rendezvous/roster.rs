//! What ranks say of themselves, and the list that rank 0 makes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_call::Error;
use weft_transport::EndpointId;
use weft_transport_tcp::Encryption;

use super::exchange::{Refusal, to_bytes, unreadable};
use crate::domains::Domain;
use crate::endpoint::{EndpointAddress, TransportAddress};
use crate::terms::{Formats, JobIdentity, Policy, Profile, Terms};

/// What must be alike on all ranks.
#[derive(Serialize, Deserialize)]
pub(crate) struct Common {
    version: String,
    formats: Formats,
    size: u32,
    /// Whether links over networks are encrypted, as it was asked.
    encryption: String,
    policy: Policy,
    settings: BTreeMap<String, String>,
    job: JobIdentity,
}

/// What a rank publishes first.
#[derive(Serialize, Deserialize)]
pub(crate) struct RankHello {
    common: Common,
    address: Vec<u8>,
    domain: Domain,
}

/// What rank 0 makes of the hellos.
#[derive(Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(super) group_id: u64,
    pub(super) profiles: Vec<Profile>,
    /// Where ranks run: names of hosts and identities of boots, each once.
    places: Vec<(String, String)>,
    entries: Vec<RosterEntry>,
}

/// A rank in the list.
#[derive(Serialize, Deserialize)]
struct RosterEntry {
    id: u128,
    /// Which of the places.
    place: u32,
    pid: u32,
    transports: Vec<TransportAddress>,
    domain: Domain,
}

impl Common {
    pub(super) fn new(size: u32, encryption: Encryption, terms: &Terms) -> Self {
        Common {
            version: env!("CARGO_PKG_VERSION").into(),
            formats: terms.formats,
            size,
            encryption: encryption.to_string(),
            policy: terms.policy.told(),
            settings: terms.settings.clone(),
            job: terms.job.clone(),
        }
    }

    /// Refuses what another rank has differently; `mine` is what rank `own` has, which the message
    /// calls `name`.
    fn same_as(&self, mine: &Common, rank: u32, (own, name): (u32, &str)) -> Result<(), Error> {
        if self.version != mine.version {
            return Err(Error::Config(format!(
                "rank {rank} runs weft {}, {name} {}: install the same version everywhere",
                self.version, mine.version
            )));
        }
        (self.formats).same_as(mine.formats, (rank, own))?;
        if self.size != mine.size {
            return Err(Error::Config(format!(
                "rank {rank} expects {} ranks, {name} {}: the world size must be the same everywhere",
                self.size, mine.size
            )));
        }
        if self.encryption != mine.encryption {
            return Err(Error::Config(format!(
                "rank {rank} was given the option encrypt={}, {name} encrypt={}: it must be the same everywhere",
                self.encryption, mine.encryption
            )));
        }
        self.policy.same_as(&mine.policy, rank, name)?;
        let both = |(setting, theirs)| Some((setting, theirs, mine.settings.get(setting)?));
        let differs =
            (self.settings.iter().filter_map(both)).find(|(_, theirs, mine)| theirs != mine);
        differs.map_or(Ok(()), |(setting, theirs, mine)| {
            Err(Error::Config(format!(
                "rank {rank} was given the option {setting}={theirs}, {name} {setting}={mine}: it must be the same everywhere"
            )))
        })
    }
}

impl RankHello {
    pub(super) fn new(common: Common, address: &EndpointAddress, domain: Domain) -> Self {
        RankHello {
            common,
            address: address.to_bytes(),
            domain,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Refuses a rank 0, which has published `first`, of another job.
    pub(super) fn check_job(&self, first: &[u8]) -> Result<(), Error> {
        let first: RankHello = postcard::from_bytes(first).map_err(|_| unreadable(0))?;
        (first.common.job).same_as(&self.common.job, 0, "this process")
    }

    /// Refuses what rank 0 has published if this rank differs.
    pub(super) fn check_first(&self, first: &[u8], own: u32) -> Result<(), Error> {
        let first: RankHello = postcard::from_bytes(first).map_err(|_| unreadable(0))?;
        (first.common).same_as(&self.common, 0, (own, "this rank"))
    }

    /// The error of this process and of another that has published `other` under the same rank.
    pub(super) fn came_twice(&self, rank: u32, other: &[u8]) -> Error {
        let other: Option<RankHello> = postcard::from_bytes(other).ok();
        let address = |hello: &RankHello| EndpointAddress::from_bytes(&hello.address).ok();
        match (other.as_ref().and_then(address), address(self)) {
            (Some(other), Some(own)) => came_twice(rank, &other, &own),
            _ => unreadable(rank),
        }
    }
}

/// The error of two processes that say that they are the same rank.
pub(super) fn came_twice(rank: u32, other: &EndpointAddress, own: &EndpointAddress) -> Error {
    Error::Config(format!(
        "rank {rank} came twice to the rendezvous: process {} on {} and process {} on {} both say that they are rank \
         {rank}. Give each process of a job a rank of its own, and each job an address of its own (MASTER_PORT) or a \
         store of its own; jobs with different WEFT_JOB_ID refuse each other",
        other.pid, other.host_name, own.pid, own.host_name
    ))
}

impl Roster {
    /// Rank 0's list, of what all ranks have published.
    pub(super) fn make(
        group_id: u64,
        own: &RankHello,
        profiles: Vec<Profile>,
        hellos: &[Vec<u8>],
    ) -> Result<Self, Box<Refusal>> {
        let mut roster = Roster {
            group_id,
            profiles,
            places: vec![],
            entries: Vec::with_capacity(hellos.len()),
        };
        if let Some(first) = hellos.first().filter(|first| **first != own.to_bytes()) {
            return Err(own.came_twice(0, first).into());
        }
        for (rank, bytes) in (0..).zip(hellos) {
            let hello: RankHello = postcard::from_bytes(bytes).map_err(|_| unreadable(rank))?;
            let other_job = |name| hello.common.job.same_as(&own.common.job, rank, name).err();
            let differs = |name| {
                other_job(name).or_else(|| hello.common.same_as(&own.common, rank, (0, name)).err())
            };
            if let (Some(here), Some(told)) = (differs("this rank"), differs("rank 0")) {
                return Err(Box::new(Refusal { here, told }));
            }
            roster.add(EndpointAddress::from_bytes(&hello.address)?, hello.domain);
        }
        Ok(roster)
    }

    fn add(&mut self, address: EndpointAddress, domain: Domain) {
        let place = (address.host_name, address.boot_id);
        // Ranks come host by host, most of the time.
        let known = self.places.iter().rposition(|known| *known == place);
        let place = known.unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        });
        self.entries.push(RosterEntry {
            id: address.id.0,
            place: place as u32,
            pid: address.pid,
            transports: address.transports,
            domain,
        });
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Rank 0's list of so many ranks, as they read it.
    pub(crate) fn read(bytes: &[u8], size: u32) -> Result<Self, Error> {
        let roster: Roster = postcard::from_bytes(bytes).map_err(|_| unreadable(0))?;
        let right = |entry: &RosterEntry| {
            (entry.place as usize) < roster.places.len() && !entry.transports.is_empty()
        };
        match roster.entries.len() == size as usize && roster.entries.iter().all(right) {
            true => Ok(roster),
            false => Err(unreadable(0)),
        }
    }

    /// Every rank's address and domain.
    pub(crate) fn members(self) -> impl Iterator<Item = (EndpointAddress, Domain)> {
        let places = self.places;
        self.entries.into_iter().map(move |entry| {
            let (host_name, boot_id) = places[entry.place as usize].clone();
            let address = EndpointAddress {
                id: EndpointId(entry.id),
                host_name,
                pid: entry.pid,
                boot_id,
                transports: entry.transports,
            };
            (address, entry.domain)
        })
    }
}
