//! Channels: the memory that ranks of a group grant each other, its layout, and the control
//! messages between the ranks.
#![warn(clippy::missing_errors_doc)]

mod connections;
mod formats;
mod layout;
mod message;
mod one_sided;
mod parts;
mod status;

pub use connections::{Channel, Connections, Remote, control_neighbours};
pub use formats::formats;
pub use layout::*;
pub use message::{ControlMessage, ENVELOPE_BYTES, GrantedPart, SplitCall, WaitCause};
pub use one_sided::CellOp;
pub use one_sided::{CellUpdate, OneSidedWord};
pub use parts::{ChannelPart, LANES, PartSet, Place};
pub use status::*;
