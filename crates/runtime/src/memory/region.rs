//! Regions: memory that peers reach over all transports of an endpoint.

use std::sync::Arc;

use weft_transport::{LinkError, RegionKey, Segment, Transport, TransportKind};

/// Exposed memory, until it is dropped.
pub(crate) struct Region(Vec<(Arc<dyn Transport>, RegionKey)>);

impl Region {
    /// Exposes a segment.
    pub(crate) fn expose(
        transports: &[Arc<dyn Transport>],
        segment: &Arc<Segment>,
    ) -> Result<Region, LinkError> {
        let mut region = Region(Vec::with_capacity(transports.len()));
        for transport in transports {
            let key = transport.expose(segment)?;
            region.0.push((transport.clone(), key));
        }
        Ok(region)
    }

    /// What names it over links of this kind.
    pub(crate) fn key(&self, kind: TransportKind) -> Option<RegionKey> {
        let mut keys = self.0.iter();
        let of_kind = keys.find(|(transport, _)| transport.kind() == kind);
        of_kind.map(|(_, key)| *key)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        for (transport, key) in &self.0 {
            transport.withdraw(*key);
        }
    }
}
