//! Models of machines; prices and plays schedules.
#![forbid(unsafe_code)]

mod advance;
mod agenda;
mod closed_form;
mod error;
mod job;
mod machine;
mod messages;
mod network;
mod orbits;
mod play;
mod program;
mod share;
mod thread;
mod trace;

pub use closed_form::closed_form;
pub use error::Error;
pub use job::{Job, Source};
pub use machine::{Host, Link, Machine, Straggler, Switch, Variation};
pub use play::{Mode, PlayOptions, PlaySymmetry, Played, play};
pub use trace::{Event, What};
