//! Regions: memory that peers access over all transports of an endpoint.

use std::sync::Arc;

use weft_transport::{LinkError, RegionKey, Segment, Transport, TransportKind, fork};

/// Exposed memory, until it is dropped.
pub struct Region {
    keys: Vec<(Arc<dyn Transport>, RegionKey)>,
    /// The process (counted in forks) that has exposed it.
    generation: u64,
}

impl Region {
    /// Exposes a segment over all transports.
    ///
    /// # Errors
    ///
    /// The error of the first transport that cannot expose it.
    pub fn expose(
        transports: &[Arc<dyn Transport>],
        segment: &Arc<Segment>,
    ) -> Result<Region, LinkError> {
        let mut region = Region {
            keys: Vec::with_capacity(transports.len()),
            generation: fork::generation(),
        };
        for transport in transports {
            let key = transport.expose(segment)?;
            region.keys.push((transport.clone(), key));
        }
        Ok(region)
    }

    /// The key of the region for links of this kind.
    pub fn key(&self, kind: TransportKind) -> Option<RegionKey> {
        let mut keys = self.keys.iter();
        let of_kind = keys.find(|(transport, _)| transport.kind() == kind);
        of_kind.map(|(_, key)| *key)
    }
}

impl Drop for Region {
    /// Does nothing in a forked child: the memory and its peers belong to the parent, and a lock
    /// may be held forever.
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        for (transport, key) in &self.keys {
            transport.withdraw(*key);
        }
    }
}
