//! Element-wise combination of two values by each reduction operation.

/// An operation on values of type `T`.
pub(crate) trait Combine<T> {
    /// The combination of `a`, which comes first, and `b`.
    fn combine(a: T, b: T) -> T;
}

/// Addition; integers wrap.
pub(crate) struct Sum;
/// Multiplication; integers wrap.
pub(crate) struct Product;
/// The smaller one.
pub(crate) struct Min;
/// The greater one.
pub(crate) struct Max;
/// Bitwise and.
pub(crate) struct And;
/// Bitwise or.
pub(crate) struct Or;
/// Bitwise exclusive or.
pub(crate) struct Xor;

macro_rules! combine_floats {
    ($($float:ty),*) => {$(
        impl Combine<$float> for Sum {
            #[inline(always)]
            fn combine(a: $float, b: $float) -> $float {
                a + b
            }
        }
        impl Combine<$float> for Product {
            #[inline(always)]
            fn combine(a: $float, b: $float) -> $float {
                a * b
            }
        }
        // Comparisons with NaN are false, so that a NaN in `a` stays.
        impl Combine<$float> for Min {
            #[inline(always)]
            fn combine(a: $float, b: $float) -> $float {
                if (b < a) | b.is_nan() { b } else { a }
            }
        }
        impl Combine<$float> for Max {
            #[inline(always)]
            fn combine(a: $float, b: $float) -> $float {
                if (b > a) | b.is_nan() { b } else { a }
            }
        }
    )*};
}

macro_rules! combine_integers {
    ($($integer:ty),*) => {$(
        impl Combine<$integer> for Sum {
            #[inline(always)]
            fn combine(a: $integer, b: $integer) -> $integer {
                a.wrapping_add(b)
            }
        }
        impl Combine<$integer> for Product {
            #[inline(always)]
            fn combine(a: $integer, b: $integer) -> $integer {
                a.wrapping_mul(b)
            }
        }
        impl Combine<$integer> for Min {
            #[inline(always)]
            fn combine(a: $integer, b: $integer) -> $integer {
                a.min(b)
            }
        }
        impl Combine<$integer> for Max {
            #[inline(always)]
            fn combine(a: $integer, b: $integer) -> $integer {
                a.max(b)
            }
        }
    )*};
}

combine_floats!(f32, f64);
combine_integers!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Combine<u8> for And {
    #[inline(always)]
    fn combine(a: u8, b: u8) -> u8 {
        a & b
    }
}

impl Combine<u8> for Or {
    #[inline(always)]
    fn combine(a: u8, b: u8) -> u8 {
        a | b
    }
}

impl Combine<u8> for Xor {
    #[inline(always)]
    fn combine(a: u8, b: u8) -> u8 {
        a ^ b
    }
}
