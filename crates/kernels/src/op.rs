//! Reduction operations.

use std::fmt;

use crate::DType;

/// How two elements become one. Integers wrap on overflow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// a + b; for booleans: or.
    Sum,
    /// a * b; for booleans: and.
    Product,
    /// The smaller one; NaN if either is NaN. Of a zero and a negative zero, the first.
    Min,
    /// The greater one; NaN if either is NaN. Of a zero and a negative zero, the first.
    Max,
    /// Bits set in both. Not for floats.
    BitAnd,
    /// Bits set in either. Not for floats.
    BitOr,
    /// Bits set in exactly one. Not for floats.
    BitXor,
}

impl ReduceOp {
    /// Every operation.
    pub const ALL: [ReduceOp; 7] = [
        ReduceOp::Sum,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Product => "product",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::BitAnd => "bitand",
            ReduceOp::BitOr => "bitor",
            ReduceOp::BitXor => "bitxor",
        }
    }

    /// The operation with this [`ReduceOp::name`].
    pub fn from_name(name: &str) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| op.name() == name)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The last step on a combined element before it is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Finish {
    /// Nothing.
    Keep,
    /// A sum becomes the average of this many contributions (at least 1).
    ///
    /// Floats are multiplied by the reciprocal, rounded to the type that they are combined in.
    /// Integers are divided, towards zero.
    Average(u32),
}

/// Whether elements of this type can be combined by this operation.
pub const fn supports(dtype: DType, op: ReduceOp) -> bool {
    match op {
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::Min | ReduceOp::Max => true,
        ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => !dtype.is_float(),
    }
}

/// Whether sums of this type can be finished with [`Finish::Average`].
pub const fn supports_average(dtype: DType) -> bool {
    !matches!(dtype, DType::Bool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_identify_operations() {
        for op in ReduceOp::ALL {
            assert_eq!(ReduceOp::from_name(op.name()), Some(op));
        }
        assert_eq!(ReduceOp::from_name("average"), None);
    }

    #[test]
    fn bitwise_operations_are_not_for_floats() {
        assert!(!supports(DType::Bf16, ReduceOp::BitXor));
        assert!(supports(DType::Bool, ReduceOp::BitXor));
        assert!(supports(DType::Bf16, ReduceOp::Max));
    }
}
