//! The verifier: symbolic execution of the programs of all ranks together.
//!
//! Every step is executed once, in an order that the signals allow. A vector clock per rank records
//! the order of steps that holds in every real run; two accesses to one chunk of one buffer that
//! are not ordered by it, one of them a write, are a race. Contents are expressions over the ranks'
//! contributions. As races are refused, one execution speaks for every interleaving.
//!
//! [Note: Reuse of slots] The executor runs the program once per tile, several tiles and operations
//! at once, and tiles that use the same slot share `Scratch`, `Receive` and flag words. So slots +
//! 1 tiles of each of two operations are executed. Tiles are counted over both; tile t uses slot t
//! % slots. Tiles of one rank are not ordered, except that tile t + slots begins at a rank after
//! tile t ended there and, where the rank puts into a peer's receive buffer, after tile t ended at
//! that peer, which then grants credit. (The executor ends a rank's tiles in order, and its
//! operations too, so it allows less than is executed.) Data that an earlier tile left in a slot
//! are no content, but its accesses are known: an access that is not ordered after them is a race.
//! A flag word must be set in order too; as its value then only grows, a wait that finds the value
//! of a later tile may continue.
//!
//! The operation that follows in the slots may be another one, which writes at once. So it is also
//! checked that accesses of peers happen before the owner's end of the tile, even if a second
//! operation of the same kind would not need that.
//!
//! [Note: One tile speaks for all] With that last check, one tile alone is enough, and is executed
//! for many ranks:
//! - Tiles have their own share of the user's memory and their own signals. Tiles with different
//!   slots share nothing.
//! - `Scratch` is written by its owner, whose tile begins after its former tile with that slot
//!   ended, and by peers that know that it has begun. Peers' accesses happen before the owner's end
//!   of tile; so they happen before it is overwritten.
//! - `Receive` is written by one peer and read by its owner alone. The writer's tile begins after
//!   the owner's former tile with that slot ended (the credit). So its reads happen before it is
//!   overwritten.
//! - A flag word is set by one peer alone, whose tile begins after its former tile with that slot
//!   ended.
//! - Claimants may differ from tile to tile, but that last check holds for each of them.
//! - A tile waits for ends of earlier tiles only, and every rank grants the credit that it owes. As
//!   one tile alone ends, all do.
//!
//! The mutation test checks that both executions refuse the same schedules, and compares accepted
//! ones with an interpreter that runs several tiles and operations.

mod access;
mod claims;
mod compute;
mod credit;
mod error;
mod execution;
mod lane;
mod location;
mod memory;
mod options;
mod outcome;
mod problem;
mod report;
mod shape;
mod signals;
mod value;
mod verification;

pub use error::VerifyError;
pub use location::StepLocation;
pub use options::{Mapped, VerifyOptions};
pub use problem::{Problem, ValueProblem};
pub use report::{Report, Share, Traffic};

use crate::ir::Schedule;
use lane::VerifierLane;
use shape::CommonShape;
use value::Values;
use verification::Verification;

/// Checks that `schedules`, of all ranks in order, together perform their collective.
///
/// Each refusal names the rank, the step and the chunk, if there is one. Refused are headers that
/// differ between ranks; a slice out of bounds; an access that the mapped memory does not allow; a
/// signal or wait without its counterpart; a deadlock; a read of unwritten memory; two unordered
/// accesses of which one is a write; an access to a peer's memory before its entry or after its
/// exit; a slot of temporary memory that is used again too early, or is still read when its owner's
/// tile ends; a put without returned credit; a contribution that is missing or doubled; a result
/// that is not final, or not the same expression on all ranks; a result that depends on the rank
/// that claims a step. A group of one rank may do nothing.
///
/// # Errors
/// The first problem found.
pub fn verify(schedules: &[Schedule], options: &VerifyOptions) -> Result<Report, VerifyError> {
    let verification = Verification {
        schedules,
        options,
        shape: CommonShape::of(schedules, options)?,
        lane: VerifierLane::of(schedules, options)?,
    };
    access::check(&verification)?;
    signals::check(schedules)?;
    let claims = claims::collect(schedules)?;
    let mut values = Values::new(verification.shape.ranks);
    let owners = claims.owners();
    let ended = execution::execute(&verification, &owners, &mut values)?
        .expect("every choice can happen in which owners wait for no claim");
    let results = outcome::check(&verification, &ended, &values)?;
    credit::check(&verification)?;
    for choice in claims.alternatives(options.claim_executions) {
        execute_again(&verification, &choice, &mut values, &ended)
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
fn execute_again(
    verification: &Verification<'_>,
    choice: &location::ClaimExecutors,
    values: &mut Values,
    expected: &execution::Ended,
) -> Result<(), VerifyError> {
    let Some(ended) = execution::execute(verification, choice, values)? else {
        return Ok(());
    };
    outcome::check(verification, &ended, values)?;
    outcome::compare(verification, expected, &ended)
}
