//! What a group counts, and the traffic on its links.

use std::sync::Arc;

use weft_transport::{EndpointId, TrafficCounts, TransportKind};

use super::counters::Counters;
use super::{Group, closed};
use crate::Error;

/// What has passed over the link to a peer, for all groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkTraffic {
    /// The peer.
    pub peer: EndpointId,
    /// The name of its host.
    pub host: String,
    /// How it is reached.
    pub kind: TransportKind,
    /// How much.
    pub traffic: TrafficCounts,
}

impl Group {
    /// The group's counters. Nothing is counted before they are first asked for.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.get_or_init(Arc::default).clone()
    }

    /// What has passed over the links to this group's other ranks, where their transport knows.
    pub fn traffic(&self) -> Result<Vec<LinkTraffic>, Error> {
        self.engine.with(|state, _| {
            let connections = &state.groups.get(&self.id).ok_or_else(closed)?.connections;
            let links = (0..self.size()).zip(&connections.links);
            let known = links.filter_map(|(rank, link)| {
                let link = link.as_ref()?;
                Some(LinkTraffic {
                    peer: link.peer(),
                    host: connections.host_name(rank).to_owned(),
                    kind: link.kind(),
                    traffic: link.traffic()?,
                })
            });
            Ok(known.collect())
        })
    }
}
