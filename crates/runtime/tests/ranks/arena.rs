//! A rank's memory for one case, watched for writes outside of the output.

use weft_runtime::{Call, Error, Group, Op, Symmetric, Waited, Work};

use super::case::{Case, GUARD, Places};
use super::judge::named;
use super::numbers;

/// The content of memory that has not been written.
const POISON: u8 = 0xa5;

/// A case that is ready to be issued, or unfinished.
pub(crate) struct Arena {
    base: *mut u8,
    bytes: usize,
    /// The previous content of the whole memory.
    before: Vec<u8>,
    places: Places,
    /// The ordinary memory, if it is used.
    _own: Option<Vec<u8>>,
}

impl Arena {
    /// The bytes of symmetric memory that a case needs.
    pub(crate) fn needed(case: &Case, ranks: u32) -> usize {
        (case.bytes(ranks as usize) + 3 * GUARD).next_multiple_of(GUARD)
    }

    /// Lays out a case in ordinary memory, or in symmetric memory at this offset.
    pub(crate) fn new(case: &Case, group: &Group, shared: Option<(&Symmetric, usize)>) -> Self {
        let (rank, ranks) = (group.rank() as usize, group.size() as usize);
        let mut places = case.places(rank, ranks);
        let bytes = Self::needed(case, group.size());
        let (base, own, skip) = match shared.filter(|_| case.symmetric) {
            Some((memory, at)) => {
                assert!(at + bytes <= memory.bytes() as usize, "too little memory");
                (memory.base().wrapping_add(at), None, GUARD)
            }
            None => {
                let mut own = vec![0; bytes];
                // Elements may begin at any address that is aligned for them.
                let skip = GUARD + case.seed as usize % 8 * case.dtype.size();
                (own.as_mut_ptr(), Some(own), skip)
            }
        };
        for range in [&mut places.input, &mut places.output] {
            *range = range.start + skip..range.end + skip;
        }
        let mut before = vec![POISON; bytes];
        before[places.input.clone()].copy_from_slice(&case.input(rank, ranks));
        // SAFETY: the memory has this length, and no operation uses it.
        unsafe { std::ptr::copy_nonoverlapping(before.as_ptr(), base, bytes) };
        Arena {
            base,
            bytes,
            before,
            places,
            _own: own,
        }
    }

    pub(crate) fn call(&self, case: &Case, group: &Group) -> Call {
        let rank = group.rank() as usize;
        Call {
            collective: case.collective,
            dtype: case.dtype,
            op: match case.op {
                Op::PremulSum(_) => Op::PremulSum(numbers::factor(rank)),
                op => op,
            },
            input: self.base.wrapping_add(self.places.input.start),
            output: self.base.wrapping_add(self.places.output.start),
            counts: case.counts(rank),
            priority: case.priority,
            timeout: None,
            algorithm: case.algorithm.clone(),
            tiling: case.tiling,
            wire: case.wire,
        }
    }

    /// Starts the case. The arena must be kept until the operation has ended.
    pub(crate) fn issue(
        &self,
        case: &Case,
        group: &Group,
        background: bool,
    ) -> Result<Work, Error> {
        // SAFETY: the arena has the sizes of the case, and is kept.
        unsafe { group.issue(self.call(case, group), background) }
    }

    /// The output of an operation that has ended. Panics if anything else was written.
    pub(crate) fn finish(self) -> Vec<u8> {
        // SAFETY: the memory has this length, and the operation has ended.
        let after = unsafe { std::slice::from_raw_parts(self.base, self.bytes) };
        let written = match self.places.writes {
            true => self.places.output.clone(),
            false => 0..0,
        };
        for outside in [0..written.start, written.end..self.bytes] {
            assert!(
                after[outside.clone()] == self.before[outside.clone()],
                "bytes in {outside:?} were written; {:?}",
                self.places
            );
        }
        after[written].to_vec()
    }
}

/// Runs a case, and returns the output.
pub(crate) fn perform(case: &Case, group: &Group, memory: Option<&Symmetric>) -> Vec<u8> {
    let (rank, ranks) = (group.rank(), group.size());
    named(&format!("rank {rank} of {ranks}: {case:?}"), || {
        let arena = Arena::new(case, group, memory.map(|memory| (memory, 0)));
        let work = arena.issue(case, group, false).unwrap();
        assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
        arena.finish()
    })
}
