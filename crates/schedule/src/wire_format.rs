//! Wire formats: representations of elements between hosts, and the calls that they are for.

use std::fmt;

use crate::collective::Collective;
use crate::encoding::Encoding;

/// How elements travel between ranks that share no memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum WireFormat {
    /// As they are.
    #[default]
    Full,
    /// As IEEE 754 binary16.
    Fp16,
    /// As bfloat16.
    Bf16,
    /// As 8-bit floats with 3 bits of mantissa, scaled by block.
    Fp8E4m3,
    /// As 8-bit floats with 2 bits of mantissa, scaled by block.
    Fp8E5m2,
}

impl WireFormat {
    /// Every format.
    pub const ALL: [WireFormat; 5] = [
        WireFormat::Full,
        WireFormat::Fp16,
        WireFormat::Bf16,
        WireFormat::Fp8E4m3,
        WireFormat::Fp8E5m2,
    ];

    /// The name that users know.
    pub fn name(self) -> &'static str {
        match self {
            WireFormat::Full => "full",
            WireFormat::Fp16 => "fp16",
            WireFormat::Bf16 => "bf16",
            WireFormat::Fp8E4m3 => "fp8_e4m3",
            WireFormat::Fp8E5m2 => "fp8_e5m2",
        }
    }

    /// The format of this name.
    ///
    /// # Errors
    /// There is no such format. The message names the existing ones.
    pub fn named(name: &str) -> Result<WireFormat, String> {
        let found = WireFormat::ALL
            .into_iter()
            .find(|format| format.name() == name);
        found.ok_or_else(|| {
            let names = WireFormat::ALL.map(WireFormat::name).join(", ");
            format!("wire={name:?} is not allowed: expected one of {names}")
        })
    }

    /// The encoding of slices that travel.
    pub fn encoding(self) -> Encoding {
        match self {
            WireFormat::Full => Encoding::Native,
            WireFormat::Fp16 => Encoding::F16,
            WireFormat::Bf16 => Encoding::Bf16,
            WireFormat::Fp8E4m3 => Encoding::E4m3,
            WireFormat::Fp8E5m2 => Encoding::E5m2,
        }
    }

    /// The reason why a collective does not support it, if so. A message to one rank only gains
    /// nothing that its sender could not do itself.
    pub fn refusal(self, collective: Collective) -> Option<String> {
        let carries = matches!(
            collective,
            Collective::AllReduce
                | Collective::Reduce { .. }
                | Collective::ReduceScatter
                | Collective::AllGather
                | Collective::Broadcast { .. }
        );
        (self != WireFormat::Full && !carries).then(|| {
            format!(
                "wire={:?} is not for {}: it is for all-reduce, reduce, reduce-scatter, all-gather and broadcast",
                self.name(),
                collective.name()
            )
        })
    }
}

impl fmt::Display for WireFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
