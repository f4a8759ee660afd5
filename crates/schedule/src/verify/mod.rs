//! The verifier: plays the programs of all ranks together, symbolically.
//!
//! Every step is played once, in an order that the signals allow. A vector clock per rank tells which steps
//! happen before which, whatever the timing of a real run; two accesses to one chunk of one buffer that
//! are not so ordered, one of them a write, are a race. Contents are expressions over the ranks' contributions.
//! As races are refused, one play speaks for every interleaving.
//!
//! [Note: One tile speaks for all] The executor plays the program once per tile, several tiles and operations at
//! once, and tiles that use the same slot share `Scratch` and `Landing`. The verifier plays one tile, and
//! from what it checks there follows the rest, for any number of tiles, slots and operations:
//! - Tiles have their own share of the user's memory and their own signals. Tiles with different slots share nothing.
//! - `Scratch` is written by its owner alone, whose tile begins after its former tile with that slot ended.
//!   The play demands that peers' reads happen before the owner's end of tile; so they happen before it is overwritten.
//! - `Landing` is written by one peer and read by its owner alone. The writer's tile begins after the owner's former tile with
//!   that slot ended, where the owner reads it (the credit). So its reads happen before it is overwritten.
//! - A tile waits for ends of earlier tiles only. As one tile alone ends, all do, one after the other.
//!
//! The mutation test checks this note against an interpreter that plays several tiles and operations.

mod access;
mod claims;
mod error;
mod memory;
mod outcome;
mod play;
mod problem;
mod report;
mod shape;
mod signals;
mod value;

pub use error::{Place, VerifyError};
pub use problem::{Problem, ValueProblem};
pub use report::{Report, Share, Traffic};

use crate::ir::{Rank, Schedule};
use shape::Shape;
use value::Values;

/// Which memory of its peers a rank can reach with loads and stores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mapped {
    /// None: the only remote access is a [`Copy`](crate::Step::Copy) into a peer's `Landing`.
    #[default]
    None,
    /// The temporary memory: `Scratch` may be read, and a reduction may write into `Landing`.
    Scratch,
    /// The temporary memory and the user's: symmetric memory.
    All,
}

/// What the verifier assumes about the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyOptions {
    /// What ranks on one host map of each other.
    pub mapped: Mapped,
    /// The host of each rank; ranks on different hosts map nothing. `None`: all are on one host.
    pub hosts: Option<Vec<u32>>,
    /// Up to how many combinations of claimants are all played. Where there are more,
    /// every claimant of every step is played once, with the other steps left to their owners.
    pub claim_plays: u32,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        VerifyOptions {
            mapped: Mapped::None,
            hosts: None,
            claim_plays: 64,
        }
    }
}

impl VerifyOptions {
    /// The default, but with this memory mapped.
    pub fn mapped(mapped: Mapped) -> Self {
        VerifyOptions {
            mapped,
            ..VerifyOptions::default()
        }
    }

    /// What `a` and `b` map of each other.
    fn between(&self, a: Rank, b: Rank) -> Mapped {
        match &self.hosts {
            Some(hosts) if hosts[a as usize] != hosts[b as usize] => Mapped::None,
            _ => self.mapped,
        }
    }
}

/// Everything that the checks look at.
struct Team<'a> {
    schedules: &'a [Schedule],
    options: &'a VerifyOptions,
    shape: Shape,
}

/// Checks that `schedules`, of all ranks in order, together do what their collective promises.
///
/// What is refused, each with a message that names the rank, the step and the chunk where there is one: headers that differ
/// between ranks; a slice out of bounds; an access that the mapped memory does not allow; a signal or wait without
/// its counterpart; a deadlock; a read of what was not written; two unordered accesses of which one is a write; an access to a peer's
/// memory before its entry or after its exit; temporary memory that is still read when its owner's tile ends; a contribution that is
/// missing or doubled; a result that is not final, or not the same expression on all ranks; a
/// result that depends on who claims a step. A group of one rank may do nothing.
///
/// # Errors
/// The first problem found.
pub fn verify(schedules: &[Schedule], options: &VerifyOptions) -> Result<Report, VerifyError> {
    let team = Team {
        schedules,
        options,
        shape: Shape::of(schedules, options)?,
    };
    access::check(&team)?;
    signals::check(schedules)?;
    let claims = claims::collect(schedules)?;
    let mut values = Values::new(team.shape.ranks);
    let owners = claims.owners();
    let ended = play::play(&team, &owners, &mut values)?
        .expect("every choice can happen in which owners wait for nobody's claim");
    let results = outcome::check(&team, &ended, &values)?;
    for choice in claims.alternatives(options.claim_plays) {
        play_again(&team, &choice, &mut values, &ended)
            .map_err(|error| error.when(&choice, &owners))?;
    }
    Ok(Report {
        latency_steps: ended.latency_steps,
        sent: ended.sent,
        read: ended.read,
        trees: results.iter().map(|value| values.show(*value)).collect(),
    })
}

/// Plays with other claimants, and checks that the results stay the same.
fn play_again(
    team: &Team<'_>,
    choice: &claims::Choice,
    values: &mut Values,
    expected: &play::Ended,
) -> Result<(), VerifyError> {
    let Some(ended) = play::play(team, choice, values)? else {
        return Ok(());
    };
    outcome::check(team, &ended, values)?;
    outcome::compare(team, expected, &ended)
}
