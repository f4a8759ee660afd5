//! Wire encodings: representations of elements in slices, beside the message's own type.

/// The elements that share one scale in [`Encoding::Fp8`].
const FP8_BLOCK: u64 = 128;

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
    /// 8-bit floats (e4m3), one f32 scale per fixed 128-element block of the message.
    Fp8,
}

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
