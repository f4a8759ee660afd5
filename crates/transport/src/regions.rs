//! Regions: the memory that an endpoint exposes over one transport, and the peers' permissions on
//! it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::ranges::Ranges;
use crate::{LinkError, Segment};

/// Names a region of the endpoint that has exposed it, over the transport that exposed it. A
/// withdrawn key is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionKey(pub u64);

impl RegionKey {
    /// The endpoint's pool: exposed from the beginning, never withdrawn.
    pub const POOL: RegionKey = RegionKey(0);
}

/// Names memory that was [registered](crate::MemoryRegistration::register) separately. A key that
/// has ended is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegistrationKey(pub u64);

/// The memory that one endpoint exposes over one transport.
#[derive(Debug)]
pub struct Regions {
    pool: Arc<Segment>,
    others: RwLock<BTreeMap<RegionKey, Arc<Segment>>>,
    next: AtomicU64,
}

impl Regions {
    /// The pool, and nothing else yet.
    pub fn new(pool: Arc<Segment>) -> Arc<Regions> {
        Arc::new(Regions {
            pool,
            others: RwLock::default(),
            next: AtomicU64::new(RegionKey::POOL.0 + 1),
        })
    }

    /// Adds a region.
    pub fn expose(&self, segment: &Arc<Segment>) -> RegionKey {
        let key = RegionKey(self.next.fetch_add(1, Ordering::Relaxed));
        self.insert(key, Arc::clone(segment));
        key
    }

    /// Adds a region under a given key: for a mirror of a peer's regions.
    pub fn insert(&self, key: RegionKey, segment: Arc<Segment>) {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.insert(key, segment);
    }

    /// Removes a region. No thread is inside [`Regions::with`] for it when this returns.
    pub fn withdraw(&self, key: RegionKey) {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.remove(&key);
    }

    /// Calls `act` with a region, if it is exposed.
    #[inline]
    pub fn with<T>(&self, key: RegionKey, act: impl FnOnce(&Arc<Segment>) -> T) -> Option<T> {
        match key {
            RegionKey::POOL => Some(act(&self.pool)),
            _ => self.others().get(&key).map(act),
        }
    }

    /// Whether memory of this process is in a region, for transports that need registration.
    pub fn covers(&self, start: *const u8, len: usize) -> bool {
        let covers = |segment: &Arc<Segment>| {
            let offset = (start as u64).checked_sub(segment.base().as_ptr() as u64);
            let end = offset.and_then(|offset| offset.checked_add(len as u64));
            end.is_some_and(|end| end <= segment.len())
        };
        len == 0 || covers(&self.pool) || self.others().values().any(covers)
    }

    fn others(&self) -> RwLockReadGuard<'_, BTreeMap<RegionKey, Arc<Segment>>> {
        self.others.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ranges that one peer may read and write, for a link that checks accesses.
#[derive(Debug)]
pub struct Grants {
    regions: Arc<Regions>,
    /// Withdrawn regions are removed at the next grant of another one.
    granted: BTreeMap<RegionKey, GrantedRanges>,
    /// The last region of which something was granted.
    last: RegionKey,
}

/// Invariant: `now` is part of `ever`.
#[derive(Default, Debug)]
struct GrantedRanges {
    now: Ranges,
    ever: Ranges,
}

impl Grants {
    /// Nothing yet, of these regions.
    pub fn new(regions: Arc<Regions>) -> Grants {
        Grants {
            regions,
            granted: BTreeMap::new(),
            last: RegionKey::POOL,
        }
    }

    /// The regions that the grants are for.
    pub fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }

    /// See [`crate::Link::grant`].
    pub fn grant(&mut self, region: RegionKey, range: Range<u64>) {
        if !self.granted.contains_key(&region) {
            let exposed = |key| self.regions.with(key, |_| ()).is_some();
            self.granted.retain(|key, _| exposed(*key));
            self.last = self.last.max(region);
        }
        let granted = self.granted.entry(region).or_default();
        granted.ever.insert(range.clone());
        granted.now.insert(range);
    }

    /// See [`crate::Link::revoke`].
    pub fn revoke(&mut self, region: RegionKey, range: Range<u64>) {
        if let Some(granted) = self.granted.get_mut(&region) {
            granted.now.remove(range);
        }
    }

    /// Whether the peer may access a range: false where it could once, an error where it never
    /// could. Nothing is stored of withdrawn regions: an access counts as late if something was
    /// granted of this region or, as keys are never reused, of a later one.
    ///
    /// # Errors
    /// [`LinkError::Protocol`] if the range was never granted.
    pub fn allow(&self, region: RegionKey, range: &Range<u64>) -> Result<bool, LinkError> {
        let granted = self.granted.get(&region);
        let now = granted.is_some_and(|granted| granted.now.covers(range));
        let contains = |segment: &Arc<Segment>| segment.contains(range);
        match self.regions.with(region, contains) {
            Some(true) if now => return Ok(true),
            None if region <= self.last => return Ok(false),
            Some(false) => {}
            _ if granted.is_some_and(|granted| granted.ever.covers(range)) => return Ok(false),
            _ => {}
        }
        Err(LinkError::Protocol(format!(
            "an access to a range that was never granted ({}..{} of region {})",
            range.start, range.end, region.0
        )))
    }
}

/// The error for an access outside of a region, or a misaligned one.
pub(crate) fn outside() -> LinkError {
    LinkError::Io(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the access is outside of the peer's region, or a word's offset is not a multiple of 8",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants() -> (Arc<Regions>, Grants) {
        let segment = || Arc::new(Segment::create("weft-test", 4096).unwrap());
        let regions = Regions::new(segment());
        (Arc::clone(&regions), Grants::new(regions))
    }

    #[test]
    fn withdrawn_regions_leave_nothing_behind() {
        let (regions, mut grants) = grants();
        let segment = Arc::new(Segment::create("weft-test", 4096).unwrap());
        let kept = regions.expose(&segment);
        grants.grant(kept, 0..64);
        for _ in 0..1000 {
            let key = regions.expose(&segment);
            grants.grant(key, 0..64);
            assert!(grants.allow(key, &(0..64)).unwrap());
            grants.revoke(key, 0..64);
            assert!(!grants.allow(key, &(0..64)).unwrap(), "late");
            regions.withdraw(key);
            assert!(!grants.allow(key, &(0..64)).unwrap(), "later");
        }
        assert!(grants.granted.len() <= 2, "{}", grants.granted.len());
        assert!(grants.allow(kept, &(0..64)).unwrap());
    }

    #[test]
    fn access_without_a_grant_is_an_error() {
        let (regions, mut grants) = grants();
        let segment = Arc::new(Segment::create("weft-test", 4096).unwrap());
        let [first, second, third] = [(); 3].map(|()| regions.expose(&segment));
        grants.grant(second, 0..64);
        for key in [first, third, RegionKey(77), RegionKey::POOL] {
            grants.allow(key, &(0..64)).unwrap_err();
        }
        grants.allow(second, &(0..65)).unwrap_err();
    }
}
