//! Symbolic results of steps.

use super::ValueProblem;
use super::memory::ChunkProblem;
use super::value::{Uncombinable, ValueId, Values};
use super::verification::Verification;
use crate::collective::Collective;
use crate::ir::{Rank, Slice, Step};

/// The values that a step writes to `dst`, by chunk, for these contents of its sources.
pub(super) fn result(
    values: &mut Values,
    step: &Step,
    dst: &Slice,
    contents: &[Vec<ValueId>],
) -> Result<Vec<ValueId>, ChunkProblem> {
    match step {
        Step::Reduce { srcs, is_final, .. } => combine(values, dst, srcs, contents, *is_final),
        _ => Ok(convert(values, dst, &contents[0])),
    }
}

/// The combination of the sources' contents, chunk by chunk.
fn combine(
    values: &mut Values,
    dst: &Slice,
    srcs: &[Slice],
    contents: &[Vec<ValueId>],
    is_final: bool,
) -> Result<Vec<ValueId>, ChunkProblem> {
    let mut result = Vec::with_capacity(dst.chunks.len());
    for (index, chunk) in dst.chunks.clone().enumerate() {
        let sources: Vec<ValueId> = contents.iter().map(|content| content[index]).collect();
        let combined = values
            .combine(&sources, is_final, dst.encoding)
            .map_err(|why| {
                let problem = match why {
                    Uncombinable::AlreadyFinal { source } => ValueProblem::AlreadyFinal {
                        slice: srcs[source].to_string(),
                    },
                    Uncombinable::Doubled { contributor } => ValueProblem::Doubled { contributor },
                    Uncombinable::Missing { contributor } => ValueProblem::Missing { contributor },
                };
                (chunk, problem.into())
            });
        result.push(combined?);
    }
    Ok(result)
}

/// The contents, converted to the encoding of `dst`.
fn convert(values: &mut Values, dst: &Slice, contents: &[ValueId]) -> Vec<ValueId> {
    let converted = contents
        .iter()
        .map(|value| values.encoded(*value, dst.encoding));
    converted.collect()
}

/// Checks that both the writer of a block and the owner of its memory know its size: in an
/// all-to-all with sizes per pair, only its two ends do.
pub(super) fn check_sizes_known(
    verification: &Verification<'_>,
    values: &Values,
    rank: Rank,
    dst: &Slice,
    contents: &[ValueId],
) -> Result<(), ChunkProblem> {
    if !verification.shape.sizes_vary || verification.shape.collective != Collective::AllToAll {
        return Ok(());
    }
    for (chunk, value) in dst.chunks.clone().zip(contents) {
        let Some((from, to)) = values.origin(*value) else {
            continue;
        };
        for party in [rank, dst.rank] {
            if party != from && party != to {
                return Err((chunk, ValueProblem::UnknownSize { from, to }.into()));
            }
        }
    }
    Ok(())
}
