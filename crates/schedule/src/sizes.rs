//! Names and sizes of encodings, and the bounds of chunks in a grid.

use std::ops::Range;

use crate::ir::{Encoding, Grid};

/// The elements that share one scale in [`Encoding::Fp8`].
const FP8_BLOCK: u64 = 128;

impl Encoding {
    /// Every encoding.
    pub const ALL: [Encoding; 5] = [
        Encoding::Native,
        Encoding::F32,
        Encoding::F16,
        Encoding::Bf16,
        Encoding::Fp8,
    ];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Native => "native",
            Encoding::F32 => "f32",
            Encoding::F16 => "f16",
            Encoding::Bf16 => "bf16",
            Encoding::Fp8 => "fp8",
        }
    }

    /// The encoding with this name in the text form.
    pub fn from_name(name: &str) -> Option<Encoding> {
        Encoding::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
    }

    /// The bytes that `elements` elements take, where a native one takes `native_bytes`.
    /// For [`Encoding::Fp8`] that includes the scales of the blocks that they fill at least.
    pub fn bytes(self, elements: u64, native_bytes: u64) -> u64 {
        match self {
            Encoding::Native => elements * native_bytes,
            Encoding::F32 => elements * 4,
            Encoding::F16 | Encoding::Bf16 => elements * 2,
            Encoding::Fp8 => elements + elements.div_ceil(FP8_BLOCK) * 4,
        }
    }
}

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
