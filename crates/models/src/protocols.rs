//! The files of the runtime and its crates that are checked here.
#![allow(dead_code)] // The models do not use all of their items.

#[path = "../../call/src/ending.rs"]
pub(crate) mod ending;
#[path = "../../runtime/src/progress/hand_over.rs"]
pub(crate) mod hand_over;
#[path = "../../bootstrap/src/endpoint/places.rs"]
pub(crate) mod places;
#[path = "../../runtime/src/execution/calling_thread/signals.rs"]
pub(crate) mod signals;
#[path = "../../runtime/src/execution/calling_thread/turns.rs"]
pub(crate) mod turns;
