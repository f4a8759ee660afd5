//! Bounds of chunks in a grid.

use std::ops::Range;

use crate::ir::Grid;

impl Grid {
    /// The elements of a chunk in a message of `elements` elements. `None` where the sizes are
    /// known only when the operation is called, or there is no such chunk.
    pub fn bounds(&self, chunk: u32, elements: u64) -> Option<Range<u64>> {
        match self {
            Grid::Equal(chunks) if chunk < *chunks => {
                let cut = |index: u32| {
                    (u128::from(elements) * u128::from(index) / u128::from(*chunks)) as u64
                };
                Some(cut(chunk)..cut(chunk + 1))
            }
            Grid::Cuts(cuts) => {
                let end = cuts.get(chunk as usize + 1)?;
                Some(cuts[chunk as usize].of(elements)..end.of(elements))
            }
            Grid::Equal(_) | Grid::Blocks(_) => None,
        }
    }
}
