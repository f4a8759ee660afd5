//! Access to a group's counters, and the traffic on its links.

use std::sync::Arc;

use weft_transport::{EndpointId, TrafficCounts, TransportKind};

use super::counters::Counters;
use super::{Group, closed};
use crate::Error;

/// The traffic over the link to a peer, for all groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkTraffic {
    /// The peer.
    pub peer: EndpointId,
    /// The name of its host.
    pub host: String,
    /// The transport.
    pub kind: TransportKind,
    /// The amount.
    pub traffic: TrafficCounts,
}

impl Group {
    /// The group's counters. Counting starts with the first call.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.get_or_init(Arc::default).clone()
    }

    /// Counts a step of training, for those who watch the job.
    pub fn count_step(&self) {
        self.engine.endpoint().flight().count_step();
    }

    /// The traffic over the links to this group's other ranks, where their transport counts it.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if the group is closed.
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
