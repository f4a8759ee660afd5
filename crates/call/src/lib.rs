//! Calls: arguments, order, fingerprints, tiling, deadlines, completion and errors.
#![warn(clippy::missing_errors_doc)]

mod arguments;
mod completion;
mod ending;
mod error;
mod fingerprint;
mod hash;
mod order;
mod sync;
mod tiling;
mod time_limit;

pub use arguments::{Call, Counts, Op};
pub use tiling::Tiling;

pub use arguments::NAMES as OP_NAMES;
pub use completion::{Completion, Finished};
pub use error::{Error, RAISE_ULIMIT_HINT, remedy};
pub use fingerprint::Fingerprint;
pub use hash::mix;
pub use order::{LEVELS, Order};
pub use time_limit::TimeLimit;
