//! Schedules: collective operations as data.
//!
//! A schedule is the program of one rank: a list of four kinds of [`Step`] over chunks of symbolic
//! size. It is built once per algorithm and group, and used for every message size. This crate
//! holds the representation, the verifier that executes all ranks together, and the text form.
#![forbid(unsafe_code)]

mod collective;
mod encoding;
mod ir;
mod rank;
mod sizes;
mod sums;
mod text;
mod tiles;
mod verify;
mod wire_format;

pub use collective::Collective;
pub use encoding::Encoding;
pub use ir::{Buffer, Claim, Fraction, Grid, Rank, Schedule, SignalId, Slice, Step};
pub use sums::sums_in_transit;
pub use text::{ParseError, parse, print};
pub use tiles::{TemporaryEntries, TileLimits};
pub use verify::{
    Mapped, Problem, Report, Share, StepLocation, Traffic, ValueProblem, VerifyError,
    VerifyOptions, verify,
};
pub use wire_format::WireFormat;
