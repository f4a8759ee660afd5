//! The tile driver: execution of an operation's tiles in its lane.

mod arrivals;
mod claims;
mod driver;
mod run;
mod strips;

pub(super) use claims::help;
pub(super) use run::advance;
