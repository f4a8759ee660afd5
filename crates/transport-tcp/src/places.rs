//! The destination memory of a peer's payloads: the ranges of regions that they name, or the memory
//! to which these are redirected.

use std::ops::Range;

use weft_transport::{Grants, IovecMut, Redirection, RegionKey};

/// The ranges that one peer may write to, and their redirections.
#[derive(Debug)]
pub(crate) struct PeerPlaces {
    pub(crate) grants: Grants,
    redirects: Vec<Redirect>,
}

/// See [`weft_transport::Redirections::redirect`].
///
/// Invariant: `range` is as long as `into`, and all of `written` is within it, in the order in
/// which it was written.
#[derive(Debug)]
struct Redirect {
    name: Redirection,
    region: RegionKey,
    range: Range<u64>,
    into: IovecMut,
    written: Vec<Range<u64>>,
}

impl PeerPlaces {
    pub(crate) fn new(grants: Grants) -> Self {
        PeerPlaces {
            grants,
            redirects: Vec::new(),
        }
    }

    pub(crate) fn redirect(
        &mut self,
        name: Redirection,
        (region, offset): (RegionKey, u64),
        into: IovecMut,
    ) {
        self.redirects.push(Redirect {
            name,
            region,
            range: offset..offset + into.len() as u64,
            into,
            written: Vec::new(),
        });
    }

    /// Ends a redirection. After this returns, nothing is written to its memory any more.
    pub(crate) fn take_back(&mut self, name: Redirection) -> Vec<Range<u64>> {
        let mut redirects = self.redirects.iter();
        match redirects.position(|redirect| redirect.name == name) {
            Some(at) => self.redirects.swap_remove(at).written,
            None => Vec::new(),
        }
    }

    /// Calls `write` with the memory at the start of a granted range, up to the end of that memory;
    /// `write` returns how many bytes it has filled. None if the region is withdrawn.
    pub(crate) fn fill<E>(
        &mut self,
        region: RegionKey,
        range: &Range<u64>,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        let overlaps = |redirect: &&mut Redirect| {
            redirect.region == region
                && redirect.range.start < range.end
                && range.start < redirect.range.end
        };
        // The redirection that begins first, so that bytes before it are written to the region.
        let first = self.redirects.iter_mut().filter(overlaps);
        match first.min_by_key(|redirect| redirect.range.start) {
            Some(redirect) if redirect.range.start <= range.start => {
                Some(redirect.fill(range, write))
            }
            other => {
                let end = other.map_or(range.end, |redirect| redirect.range.start);
                self.fill_region(region, range.start..end, write)
            }
        }
    }

    fn fill_region<E>(
        &self,
        region: RegionKey,
        range: Range<u64>,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        self.grants.regions().with(region, |segment| {
            let start = segment
                .at(&range)
                .expect("granted ranges are in the region");
            let bytes = (range.end - range.start) as usize;
            // SAFETY: the range is within the mapped region and is granted to this peer alone; the
            // owner reads it only after the signal that follows the payload.
            write(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
        })
    }
}

impl Redirect {
    /// Fills the memory of a range that begins within this redirection.
    fn fill<E>(
        &mut self,
        range: &Range<u64>,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let skipped = (range.start - self.range.start) as usize;
        let bytes = (range.end.min(self.range.end) - range.start) as usize;
        let start = self.into.start().wrapping_add(skipped);
        // SAFETY: within `into`, whose maker has promised that it stays writable, and that nothing
        // else accesses it, until the redirection is taken back: then it is not found here.
        let filled = write(unsafe { std::slice::from_raw_parts_mut(start, bytes) })?;
        let end = range.start + filled.min(bytes) as u64;
        match self.written.last_mut() {
            Some(last) if last.end == range.start => last.end = end,
            _ => self.written.push(range.start..end),
        }
        Ok(filled)
    }
}
