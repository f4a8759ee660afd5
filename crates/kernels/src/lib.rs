//! Element kernels: n-way reduction, copy to several destinations, conversion and scaling; and
//! optimizers' updates, to which the following does not apply (see [Note: torch's bits]).
//!
//! Every kernel exists once, as a loop over blocks, and is compiled for each [`IsaLevel`] of
//! instructions; the best level of this machine is chosen at run time. The result never depends on
//! the level, nor on how a message is cut into calls:
//!
//! - sources are combined strictly in the order given;
//! - no multiplication is fused with an addition;
//! - 16-bit floats are combined as `f32` and rounded once, to nearest even, at the end of the call;
//!   so are sources that are represented otherwise than as the elements of the message;
//! - NaNs are written as the one quiet NaN of their type, because the payload that
//!   hardware leaves in a sum of two NaNs depends on the order of operands, which compilers change
//!   freely;
//! - subnormal numbers count, even where the calling thread has set the processor to flush them.
//!
//! Pointers need no alignment, and counts no divisibility.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod average;
mod averaged_f16;
mod bf16_pairs;
mod block;
mod combine;
mod convert;
mod copy;
mod dtype;
mod element;
mod float8;
mod float_environment;
mod half_float;
mod isa;
mod level;
mod op;
mod reduce;
mod representation;
mod scale;
mod sweep;
mod update;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use average::{AverageStep, average_halves};
pub use convert::convert;
pub use copy::{copy, copy_past_caches};
pub use dtype::DType;
pub use float8::{Float8, SCALED_BLOCK};
pub use level::IsaLevel;
pub use op::{Finish, ReduceOp, supports, supports_average};
pub use reduce::reduce;
pub use representation::{Representation, Represented};
pub use scale::scale;
pub use update::{AdamElements, AdamStep, AdamUpdate, SgdElements, SgdStep};
