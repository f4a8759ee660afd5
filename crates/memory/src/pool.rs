//! Allocator of ranges of the endpoint's pool.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weft_transport::{POOL_HEADER, Segment, fork};

use weft_call::Error;

/// Ranges begin and end at multiples of this, so that freeing one gives its memory back to the
/// system.
const PAGE: u64 = 4096;
/// Freed memory up to this offset stays with the process: allocation takes the lowest free range,
/// so the next group gets pages that need not be made. To make those of a group takes longer than
/// all else that ranks do after a death (17 ms for 32 MiB, and every rank of a host makes them).
const KEPT_BYTES: u64 = 64 << 20;

/// A range of the pool that belongs to the holder of this value, until it is passed to
/// [`Pool::free`].
#[derive(PartialEq, Eq, Debug)]
pub struct PoolRange {
    /// The first byte, as an offset in the pool.
    pub offset: u64,
    /// The length in bytes, a multiple of the page size, at least the requested size.
    pub bytes: u64,
}

impl PoolRange {
    /// The offsets that it covers.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// Bounded memory that peers can be granted ranges of.
///
/// Invariant: the ranges in `free` are page-aligned, not empty, disjoint, and not adjacent to one
/// another.
#[derive(Debug)]
pub struct Pool {
    segment: Arc<Segment>,
    free: Mutex<BTreeMap<u64, u64>>,
    /// Freed memory up to this offset is not returned to the system.
    kept: u64,
    quarantined: AtomicU64,
    /// The process (counted in forks) that it belongs to.
    generation: u64,
}

impl Pool {
    /// A pool of which everything after the segment's header is free.
    pub fn new(segment: Arc<Segment>) -> Self {
        let end = segment.len() / PAGE * PAGE;
        let mut free = BTreeMap::new();
        if end > POOL_HEADER {
            free.insert(POOL_HEADER, end - POOL_HEADER);
        }
        Self {
            segment,
            free: Mutex::new(free),
            kept: KEPT_BYTES,
            quarantined: AtomicU64::new(0),
            generation: fork::generation(),
        }
    }

    /// As [`Pool::new`], for memory that is registered with adapters. All freed pages stay in the
    /// segment, as adapters would continue to use pages that it has lost.
    pub fn keeping_memory(segment: Arc<Segment>) -> Self {
        Self {
            kept: u64::MAX,
            ..Self::new(segment)
        }
    }

    /// The memory itself.
    #[inline]
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The number of bytes that are not allocated.
    pub fn available(&self) -> u64 {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.values().sum()
    }

    /// The number of allocated bytes in quarantine: a peer that is lost, or has not left a closed
    /// group yet, may still write there.
    pub fn quarantined(&self) -> u64 {
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Sets the number of bytes in quarantine.
    pub fn note_quarantined(&self, bytes: u64) {
        self.quarantined.store(bytes, Ordering::Relaxed);
    }

    /// Allocates the first range that fits, filled with zeros. `align` is a power of two.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the pool has no such range, or the system no memory for it.
    pub fn allocate(&self, bytes: u64, align: u64) -> Result<PoolRange, Error> {
        let align = align.max(PAGE);
        let Some(rounded) = bytes.max(1).checked_next_multiple_of(PAGE) else {
            return Err(self.exhausted(bytes));
        };
        let range = self
            .take(rounded, align)
            .ok_or_else(|| self.exhausted(bytes))?;
        if let Err(error) = self.segment.reserve(range.range()) {
            let message = format!(
                "the system has no memory for {bytes} more bytes of weft's pool ({error}). \
                 Close other programs, or raise the memory limit of this container"
            );
            self.put_back(range.offset, range.bytes);
            return Err(Error::Config(message));
        }
        Ok(range)
    }

    /// Returns a range to the pool, and the memory that the pool does not keep to the system. Does
    /// nothing in a forked child, where the memory belongs to the parent.
    pub fn free(&self, range: PoolRange) {
        if self.generation != fork::generation() {
            return;
        }
        let (start, end) = (range.offset, range.offset + range.bytes);
        let kept = self.kept.clamp(start, end);
        let cleared = self.segment.clear(start..kept);
        let emptied = cleared.and_then(|()| self.segment.release(kept..end));
        // A range that cannot be emptied still has old bytes, so it is leaked instead of being
        // allocated again.
        if emptied.is_ok() {
            self.put_back(range.offset, range.bytes);
        }
    }

    fn take(&self, bytes: u64, align: u64) -> Option<PoolRange> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, len, offset) = free.iter().find_map(|(&start, &len)| {
            let offset = start.checked_next_multiple_of(align)?;
            let end = offset.checked_add(bytes)?;
            (end <= start + len).then_some((start, len, offset))
        })?;
        free.remove(&start);
        if offset > start {
            free.insert(start, offset - start);
        }
        if offset + bytes < start + len {
            free.insert(offset + bytes, start + len - offset - bytes);
        }
        Some(PoolRange { offset, bytes })
    }

    fn put_back(&self, mut offset: u64, mut bytes: u64) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((&before, &len)) = free.range(..offset).next_back()
            && before + len == offset
        {
            free.remove(&before);
            offset = before;
            bytes += len;
        }
        if let Some(len) = free.remove(&(offset + bytes)) {
            bytes += len;
        }
        free.insert(offset, bytes);
    }

    fn exhausted(&self, bytes: u64) -> Error {
        Error::Config(format!(
            "weft's pool has no room for {bytes} more bytes ({} of {} are free, {} are kept from \
             ranks that have not left closed groups). \
             Raise WEFT_POOL_BYTES (pool_bytes), or close groups that are no longer needed",
            self.available(),
            self.segment.len(),
            self.quarantined()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(pages: u64) -> Pool {
        let bytes = POOL_HEADER + pages * PAGE;
        Pool::new(Arc::new(Segment::create("pool-test", bytes).unwrap()))
    }

    /// The bytes of the segment that are in memory.
    fn resident(pool: &Pool) -> u64 {
        let file = std::fs::File::from(pool.segment().descriptor().try_clone_to_owned().unwrap());
        std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512
    }

    #[test]
    fn kept_memory_stays_resident_and_is_cleared() {
        let pool = Pool::keeping_memory(pool(4).segment().clone());
        let range = pool.allocate(2 * PAGE, PAGE).unwrap();
        let word = pool.segment().word(range.offset);
        word.store(7, Ordering::Relaxed);
        let before = resident(&pool);
        pool.free(range);
        assert_eq!((word.load(Ordering::Relaxed), resident(&pool)), (0, before));
        assert_eq!(pool.available(), 4 * PAGE);
    }

    #[test]
    fn only_the_first_freed_bytes_stay_resident() {
        let pool = pool((KEPT_BYTES + (1 << 20)) / PAGE);
        let range = pool.allocate(pool.available(), 1).unwrap();
        let word = pool.segment().word(range.offset);
        word.store(7, Ordering::Relaxed);
        pool.free(range);
        assert_eq!(word.load(Ordering::Relaxed), 0);
        assert_eq!(resident(&pool), KEPT_BYTES - POOL_HEADER);
    }

    #[test]
    fn ranges_are_disjoint_and_can_be_freed() {
        let pool = pool(4);
        let first = pool.allocate(1, 1).unwrap();
        let second = pool.allocate(2 * PAGE, 1).unwrap();
        assert_eq!(first.range(), POOL_HEADER..POOL_HEADER + PAGE);
        assert_eq!(second.offset, POOL_HEADER + PAGE);
        pool.free(first);
        pool.free(second);
        assert_eq!(pool.available(), 4 * PAGE);
        assert_eq!(pool.allocate(4 * PAGE, 1).unwrap().bytes, 4 * PAGE);
    }

    #[test]
    fn alignment_leaves_the_gap_usable() {
        let pool = pool(15);
        let aligned = pool.allocate(PAGE, 8 * PAGE).unwrap();
        assert_eq!(aligned.offset, 8 * PAGE);
        assert_eq!(pool.allocate(PAGE, 1).unwrap().offset, POOL_HEADER);
    }

    #[test]
    fn exhausted_pool_names_the_setting_to_raise() {
        let pool = pool(2);
        for bytes in [3 * PAGE, u64::MAX, u64::MAX - PAGE] {
            let error = pool.allocate(bytes, 1).unwrap_err();
            assert!(error.to_string().contains("pool_bytes"), "{error}");
        }
        assert_eq!(pool.available(), 2 * PAGE);
    }

    #[test]
    fn freed_memory_is_zero_when_allocated_again() {
        let pool = pool(1);
        let range = pool.allocate(PAGE, 1).unwrap();
        let word = |offset| pool.segment().word(offset);
        word(range.offset).store(7, std::sync::atomic::Ordering::Relaxed);
        pool.free(range);
        let range = pool.allocate(PAGE, 1).unwrap();
        let value = word(range.offset).load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(value, 0);
    }
}
