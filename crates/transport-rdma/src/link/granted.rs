//! The memory that the peer may access here: grants, and their registrations.
//!
//! Each granted range has a registration and a key of its own: an adapter lets the peer access that
//! range only. Revoking a grant ends the registration, and the key with it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_transport::{Grants, LinkError, RegionKey, Regions, Signal};

use super::checks::invalid;
use crate::control::LinkControl;
use crate::rail::Rail;
use crate::verbs::{DeviceRegistration, MemoryAccess};

/// A range of which the peer has keys.
struct Exposed {
    region: RegionKey,
    range: Range<u64>,
    /// For each rail.
    memory: Vec<DeviceRegistration>,
}

impl Exposed {
    fn overlaps(&self, region: RegionKey, range: &Range<u64>) -> bool {
        self.region == region && self.range.start < range.end && range.start < self.range.end
    }
}

/// All memory that one peer may access here.
pub(crate) struct PeerGrants {
    grants: Grants,
    regions: Arc<Regions>,
    exposed: Vec<Exposed>,
    /// The number of key changes: a message waits for those before it.
    key_changes: u64,
}

impl PeerGrants {
    /// Nothing yet.
    pub(crate) fn new(regions: &Arc<Regions>) -> PeerGrants {
        PeerGrants {
            grants: Grants::new(Arc::clone(regions)),
            regions: Arc::clone(regions),
            exposed: Vec::new(),
            key_changes: 0,
        }
    }

    /// The number of key changes.
    pub(crate) fn key_changes(&self) -> u64 {
        self.key_changes
    }

    /// See [`Grants::allow`].
    pub(crate) fn allow(&self, region: RegionKey, range: &Range<u64>) -> Result<bool, LinkError> {
        self.grants.allow(region, range)
    }

    /// Grants a range. Returns the control message for the peer.
    pub(crate) fn grant(
        &mut self,
        rails: &[Rail],
        region: RegionKey,
        range: Range<u64>,
    ) -> Result<Option<LinkControl>, LinkError> {
        if range.is_empty() {
            return Ok(None);
        }
        let message = self.expose(rails, region, range.clone())?;
        self.grants.grant(region, range);
        Ok(Some(message))
    }

    /// Revokes a grant. Returns the control messages for the peer, in order.
    pub(crate) fn revoke(
        &mut self,
        rails: &[Rail],
        region: RegionKey,
        range: &Range<u64>,
    ) -> Vec<LinkControl> {
        self.grants.revoke(region, range.clone());
        let overlaps = |exposed: &mut Exposed| exposed.overlaps(region, range);
        let hit: Vec<Exposed> = self.exposed.extract_if(.., overlaps).collect();
        let mut all = Vec::new();
        for Exposed {
            range: was, memory, ..
        } in hit
        {
            drop(memory);
            self.key_changes += 1;
            let void = was.clone();
            all.push(LinkControl::Void {
                region,
                range: void,
            });
            let rest = [was.start..range.start, range.end..was.end];
            for rest in rest.into_iter().filter(|rest| rest.start < rest.end) {
                // Without a key the peer asks for it, and the answer is that its access is late.
                all.extend(self.expose(rails, region, rest));
            }
        }
        all
    }

    /// Ends all registrations: every key becomes void.
    pub(crate) fn clear(&mut self) {
        self.exposed.clear();
    }

    /// Stores the contents of a frame, where the peer may write.
    pub(crate) fn store(
        &self,
        (region, offset, bytes): (RegionKey, u64, &[u8]),
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        let beyond = || LinkError::Protocol("a place beyond the address space".into());
        if !bytes.is_empty() {
            let end = offset.checked_add(bytes.len() as u64).ok_or_else(beyond)?;
            let range = offset..end;
            if self.allow(region, &range)? {
                self.regions.with(region, |segment| {
                    let at = segment
                        .at(&range)
                        .expect("granted ranges are in the region");
                    // SAFETY: the range is within the region, and was granted to the peer: its
                    // signals order other accesses.
                    unsafe {
                        at.as_ptr()
                            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
                    };
                });
            }
        }
        if let Some(Signal { offset, value }) = signal {
            let end = offset.checked_add(8).filter(|_| offset.is_multiple_of(8));
            if self.allow(RegionKey::POOL, &(offset..end.ok_or_else(beyond)?))? {
                self.regions.with(RegionKey::POOL, |pool| {
                    pool.word(offset).store(value, Ordering::Release);
                });
            }
        }
        Ok(())
    }

    /// Registers a range for the peer, on all rails.
    fn expose(
        &mut self,
        rails: &[Rail],
        region: RegionKey,
        range: Range<u64>,
    ) -> Result<LinkControl, LinkError> {
        let segment = self.regions.with(region, Arc::clone);
        let segment = segment.ok_or_else(|| invalid("the region is not exposed"))?;
        let register = |rail: &Rail| {
            let device = rail.registered.device();
            DeviceRegistration::register(device, &segment, &range, MemoryAccess::Peer)
        };
        let memory: Vec<DeviceRegistration> =
            rails.iter().map(register).collect::<io::Result<_>>()?;
        let keys = memory.iter().map(DeviceRegistration::for_peer).collect();
        self.key_changes += 1;
        self.exposed.push(Exposed {
            region,
            range: range.clone(),
            memory,
        });
        Ok(LinkControl::Keys {
            region,
            range,
            memory: keys,
        })
    }
}
