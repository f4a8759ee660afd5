//! Calls: arguments, order, fingerprints, tiling, deadlines and completion.

mod arguments;
mod completion;
mod due;
mod ending;
mod fingerprint;
mod hash;
mod order;
mod tiling;

pub use arguments::{Call, Counts, Op};
pub use tiling::Tiling;

pub(crate) use arguments::{NAMES as OP_NAMES, knows_all_counts};
pub(crate) use completion::{Completion, Finished};
pub(crate) use due::Due;
pub(crate) use fingerprint::Fingerprint;
pub(crate) use hash::mix;
pub(crate) use order::{LEVELS, Order};
