//! The memory that a peer's payloads go to: the ranges of regions that they name, or what these are
//! redirected to.

use std::ops::Range;

use weft_transport::{Grants, IovecMut, Redirection, RegionKey};

/// What one peer may write to, and where it goes.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) grants: Grants,
    redirects: Vec<Redirect>,
}

/// See [`weft_transport::Redirections::redirect`].
///
/// Invariant: `range` is as long as `into`, and all of `written` lies in it, in the order in which
/// it was written.
#[derive(Debug)]
struct Redirect {
    name: Redirection,
    region: RegionKey,
    range: Range<u64>,
    into: IovecMut,
    written: Vec<Range<u64>>,
}

impl Places {
    pub(crate) fn new(grants: Grants) -> Self {
        Places {
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

    /// After this returns, nothing is written to its memory any more.
    pub(crate) fn take_back(&mut self, name: Redirection) -> Vec<Range<u64>> {
        let mut redirects = self.redirects.iter();
        match redirects.position(|redirect| redirect.name == name) {
            Some(at) => self.redirects.swap_remove(at).written,
            None => Vec::new(),
        }
    }

    /// Lets `write` fill the memory that a granted range begins in, as far as that reaches, and say
    /// how much it has filled. None if the region is withdrawn.
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
        // The one that begins first, so that what lies before it goes to the region.
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
            // SAFETY: the range lies within the mapped region and is granted to this peer alone;
            // the owner reads it only after the signal that follows the payload.
            write(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) })
        })
    }
}

impl Redirect {
    /// Of a range that begins in this one's.
    fn fill<E>(
        &mut self,
        range: &Range<u64>,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let skipped = (range.start - self.range.start) as usize;
        let bytes = (range.end.min(self.range.end) - range.start) as usize;
        let start = self.into.start().wrapping_add(skipped);
        // SAFETY: within `into`, whose maker has promised that it stays writable, and that nobody
        // else touches it, until the redirection is taken back: then it is not found here.
        let filled = write(unsafe { std::slice::from_raw_parts_mut(start, bytes) })?;
        let end = range.start + filled.min(bytes) as u64;
        match self.written.last_mut() {
            Some(last) if last.end == range.start => last.end = end,
            _ => self.written.push(range.start..end),
        }
        Ok(filled)
    }
}
