//! Channels: the memory that ranks of a group grant each other, its layout, and the control
//! messages between the ranks.

mod connections;
mod flag;
mod formats;
mod layout;
mod message;
mod one_sided;
mod parts;

pub(crate) use connections::{Channel, Connections, Remote, control_neighbours};
pub(crate) use flag::{flag_value, has_come};
pub(crate) use formats::formats;
pub(crate) use layout::*;
pub(crate) use message::{ControlMessage, ENVELOPE_BYTES, GrantedPart, SplitCall};
pub use one_sided::CellOp;
pub(crate) use one_sided::{CellUpdate, OneSidedWord};
pub(crate) use parts::{LANES, Part, PartSet, Place};
