//! What the peer may reach here: grants, and the registrations behind them.
//!
//! Each granted range is registered by itself, with a key of its own: an adapter lets the peer
//! reach that range and nothing else. Taking a grant back ends the registration, and the key with
//! it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_transport::{Grants, LinkError, RegionKey, Regions, Signal};

use super::checks::invalid;
use crate::news::News;
use crate::rail::Rail;
use crate::verbs::{Access, RegisteredMemory};

/// A range that the peer has keys of.
struct Exposed {
    region: RegionKey,
    range: Range<u64>,
    /// For each rail.
    memory: Vec<RegisteredMemory>,
}

impl Exposed {
    fn overlaps(&self, region: RegionKey, range: &Range<u64>) -> bool {
        self.region == region && self.range.start < range.end && range.start < self.range.end
    }
}

/// Everything that one peer may reach here.
pub(crate) struct Granted {
    grants: Grants,
    regions: Arc<Regions>,
    exposed: Vec<Exposed>,
    /// News of keys that there were: a message waits for those before it.
    news: u64,
}

impl Granted {
    /// Nothing yet.
    pub(crate) fn new(regions: &Arc<Regions>) -> Granted {
        Granted {
            grants: Grants::new(Arc::clone(regions)),
            regions: Arc::clone(regions),
            exposed: Vec::new(),
            news: 0,
        }
    }

    /// How many news of keys there were.
    pub(crate) fn news(&self) -> u64 {
        self.news
    }

    /// See [`Grants::allow`].
    pub(crate) fn allow(&self, region: RegionKey, range: &Range<u64>) -> Result<bool, LinkError> {
        self.grants.allow(region, range)
    }

    /// Grants a range. Returns what the peer must be told.
    pub(crate) fn grant(
        &mut self,
        rails: &[Rail],
        region: RegionKey,
        range: Range<u64>,
    ) -> Result<Option<News>, LinkError> {
        if range.is_empty() {
            return Ok(None);
        }
        let news = self.expose(rails, region, range.clone())?;
        self.grants.grant(region, range);
        Ok(Some(news))
    }

    /// Takes that back. Returns what the peer must be told, in order.
    pub(crate) fn revoke(
        &mut self,
        rails: &[Rail],
        region: RegionKey,
        range: &Range<u64>,
    ) -> Vec<News> {
        self.grants.revoke(region, range.clone());
        let overlaps = |exposed: &mut Exposed| exposed.overlaps(region, range);
        let hit: Vec<Exposed> = self.exposed.extract_if(.., overlaps).collect();
        let mut all = Vec::new();
        for Exposed {
            range: was, memory, ..
        } in hit
        {
            drop(memory);
            self.news += 1;
            let void = was.clone();
            all.push(News::Void {
                region,
                range: void,
            });
            let rest = [was.start..range.start, range.end..was.end];
            for rest in rest.into_iter().filter(|rest| rest.start < rest.end) {
                // Without a key the peer asks, and is told that it comes late.
                all.extend(self.expose(rails, region, rest));
            }
        }
        all
    }

    /// Ends all registrations: no key is good any more.
    pub(crate) fn clear(&mut self) {
        self.exposed.clear();
    }

    /// Stores what a frame brings, where the peer may.
    pub(crate) fn store(
        &self,
        (region, offset, bytes): (RegionKey, u64, &[u8]),
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        let beyond = || LinkError::Protocol("a place beyond all memory".into());
        if !bytes.is_empty() {
            let end = offset.checked_add(bytes.len() as u64).ok_or_else(beyond)?;
            let range = offset..end;
            if self.allow(region, &range)? {
                self.regions.with(region, |segment| {
                    let at = segment
                        .at(&range)
                        .expect("granted ranges are in the region");
                    // SAFETY: the range lies within the region, and was granted to the peer: what
                    // others do there is ordered by its signals.
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

    /// Registers a range for the peer, over all rails.
    fn expose(
        &mut self,
        rails: &[Rail],
        region: RegionKey,
        range: Range<u64>,
    ) -> Result<News, LinkError> {
        let segment = self.regions.with(region, Arc::clone);
        let segment = segment.ok_or_else(|| invalid("a region that is not exposed"))?;
        let register = |rail: &Rail| {
            let device = rail.registered.device();
            RegisteredMemory::register(device, &segment, &range, Access::Peer)
        };
        let memory: Vec<RegisteredMemory> =
            rails.iter().map(register).collect::<io::Result<_>>()?;
        let keys = memory.iter().map(RegisteredMemory::for_peer).collect();
        self.news += 1;
        self.exposed.push(Exposed {
            region,
            range: range.clone(),
            memory,
        });
        Ok(News::Keys {
            region,
            range,
            memory: keys,
        })
    }
}
