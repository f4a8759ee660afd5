//! Wire encodings: representations of elements in slices other than the message's own type.

/// The elements that share one scale in 8-bit encodings.
const SCALED_BLOCK: u64 = 128;

/// How elements are represented in a slice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Encoding {
    /// The message's own element type.
    #[default]
    Native,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// 8-bit floats with 3 bits of mantissa, one f32 scale per block of 128 elements.
    E4m3,
    /// 8-bit floats with 2 bits of mantissa, one f32 scale per block of 128 elements.
    E5m2,
}

impl Encoding {
    /// Every encoding.
    pub const ALL: [Encoding; 6] = [
        Encoding::Native,
        Encoding::F32,
        Encoding::F16,
        Encoding::Bf16,
        Encoding::E4m3,
        Encoding::E5m2,
    ];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Native => "native",
            Encoding::F32 => "f32",
            Encoding::F16 => "f16",
            Encoding::Bf16 => "bf16",
            Encoding::E4m3 => "e4m3",
            Encoding::E5m2 => "e5m2",
        }
    }

    /// The encoding with this name in the text form.
    pub fn from_name(name: &str) -> Option<Encoding> {
        Encoding::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
    }

    /// Whether elements share scales, block by block.
    pub fn is_scaled(self) -> bool {
        matches!(self, Encoding::E4m3 | Encoding::E5m2)
    }

    /// The elements that share a scale; one, if none do.
    pub fn block(self) -> u64 {
        match self.is_scaled() {
            true => SCALED_BLOCK,
            false => 1,
        }
    }

    /// The bytes that `elements` elements take, where a native one takes `native_bytes`.
    /// For 8-bit floats that includes the scales of the blocks that they fill at least.
    pub fn bytes(self, elements: u64, native_bytes: u64) -> u64 {
        match self {
            Encoding::Native => elements * native_bytes,
            Encoding::F32 => elements * 4,
            Encoding::F16 | Encoding::Bf16 => elements * 2,
            Encoding::E4m3 | Encoding::E5m2 => elements + elements.div_ceil(SCALED_BLOCK) * 4,
        }
    }
}
