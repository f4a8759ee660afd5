//! The ranks' hellos, and rank 0's list of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_call::Error;
use weft_transport::EndpointId;
use weft_transport_tcp::Encryption;

use super::exchange::{MeetingRefusal, to_bytes, unreadable};
use crate::domains::Domain;
use crate::endpoint::{EndpointAddress, TransportAddress};
use crate::group_terms::{Formats, GroupTerms, JobIdentity, Policy, Profile};

/// The values that must be the same on all ranks.
#[derive(Serialize, Deserialize)]
pub(crate) struct Common {
    version: String,
    formats: Formats,
    size: u32,
    /// The requested encryption of links over networks.
    encryption: String,
    policy: Policy,
    settings: BTreeMap<String, String>,
    job: JobIdentity,
}

/// A rank's first value.
#[derive(Serialize, Deserialize)]
pub(crate) struct RankHello {
    common: Common,
    address: Vec<u8>,
    domain: Domain,
}

/// Rank 0's list of the hellos.
#[derive(Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(super) group_id: u64,
    pub(super) profiles: Vec<Profile>,
    /// The places of ranks: host names and boot identities, without duplicates.
    places: Vec<(String, String)>,
    entries: Vec<RosterEntry>,
}

/// A rank in the list.
#[derive(Serialize, Deserialize)]
struct RosterEntry {
    id: u128,
    /// The index of its place.
    place: u32,
    pid: u32,
    transports: Vec<TransportAddress>,
    domain: Domain,
}

impl Common {
    pub(super) fn new(size: u32, encryption: Encryption, terms: &GroupTerms) -> Self {
        Common {
            version: env!("CARGO_PKG_VERSION").into(),
            formats: terms.formats,
            size,
            encryption: encryption.to_string(),
            policy: terms.policy.published(),
            settings: terms.settings.clone(),
            job: terms.job.clone(),
        }
    }

    /// Rejects a rank whose values differ; `mine` are those of rank `own`, which the message calls
    /// `name`.
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

    /// Rejects a rank 0 of another job, which has published `first`.
    pub(super) fn check_job(&self, first: &[u8]) -> Result<(), Error> {
        let first: RankHello = postcard::from_bytes(first).map_err(|_| unreadable(0))?;
        (first.common.job).same_as(&self.common.job, 0, "this process")
    }

    /// Rejects rank 0's values if this rank's differ.
    pub(super) fn check_first(&self, first: &[u8], own: u32) -> Result<(), Error> {
        let first: RankHello = postcard::from_bytes(first).map_err(|_| unreadable(0))?;
        (first.common).same_as(&self.common, 0, (own, "this rank"))
    }

    /// The error of this process and of another that has published `other` under the same rank.
    pub(super) fn joined_twice(&self, rank: u32, other: &[u8]) -> Error {
        let other: Option<RankHello> = postcard::from_bytes(other).ok();
        let address = |hello: &RankHello| EndpointAddress::from_bytes(&hello.address).ok();
        match (other.as_ref().and_then(address), address(self)) {
            (Some(other), Some(own)) => joined_twice(rank, &other, &own),
            _ => unreadable(rank),
        }
    }
}

/// The error of two processes with the same rank.
pub(super) fn joined_twice(rank: u32, other: &EndpointAddress, own: &EndpointAddress) -> Error {
    Error::Config(format!(
        "rank {rank} joined the rendezvous twice: process {} on {} and process {} on {} both say that they are rank \
         {rank}. Give each process of a job a rank of its own, and each job an address of its own (MASTER_PORT) or a \
         store of its own; jobs with different WEFT_JOB_ID refuse each other",
        other.pid, other.host_name, own.pid, own.host_name
    ))
}

impl Roster {
    /// Rank 0's list, from the hellos of all ranks.
    pub(super) fn make(
        group_id: u64,
        own: &RankHello,
        profiles: Vec<Profile>,
        hellos: &[Vec<u8>],
    ) -> Result<Self, Box<MeetingRefusal>> {
        let mut roster = Roster {
            group_id,
            profiles,
            places: vec![],
            entries: Vec::with_capacity(hellos.len()),
        };
        if let Some(first) = hellos.first().filter(|first| **first != own.to_bytes()) {
            return Err(own.joined_twice(0, first).into());
        }
        for (rank, bytes) in (0..).zip(hellos) {
            let hello: RankHello = postcard::from_bytes(bytes).map_err(|_| unreadable(rank))?;
            let other_job = |name| hello.common.job.same_as(&own.common.job, rank, name).err();
            let differs = |name| {
                other_job(name).or_else(|| hello.common.same_as(&own.common, rank, (0, name)).err())
            };
            if let (Some(here), Some(others)) = (differs("this rank"), differs("rank 0")) {
                return Err(Box::new(MeetingRefusal { here, others }));
            }
            roster.add(EndpointAddress::from_bytes(&hello.address)?, hello.domain);
        }
        Ok(roster)
    }

    fn add(&mut self, address: EndpointAddress, domain: Domain) {
        let place = (address.host_name, address.boot_id);
        // Ranks are mostly numbered host by host.
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

    /// Parses rank 0's list of `size` ranks.
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
