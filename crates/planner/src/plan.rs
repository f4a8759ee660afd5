//! The schedule of an algorithm for a group, and the verifier's findings about it.

use serde::{Deserialize, Serialize};
use weft_algorithms::{Reach, Refusal, select};
use weft_schedule::{Rank, print};

use crate::algorithms::AlgorithmNeeds;
use crate::verify::{Verdict, verdict};
use crate::{CallRequest, PlannerError};

/// A schedule of this many ranks is verified within a minute.
const RANKS_MAX: u32 = 1024;

/// Asks for the schedule of an algorithm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The algorithm's name, with or without its parts.
    pub algorithm: String,
    /// The rank of the requested program; all ranks' programs, if it is left out.
    pub rank: Option<Rank>,
    /// The call that it is for.
    pub call: CallRequest,
}

/// A schedule, with the facts about it.
#[derive(Clone, Debug, Serialize)]
pub struct PlanAnswer {
    /// The name of the collective.
    pub collective: &'static str,
    /// The algorithm's name, with its parts.
    pub algorithm: String,
    /// One line of description.
    pub summary: &'static str,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of ranks on each host.
    pub hosts: Vec<u32>,
    /// Requirements and abilities of the algorithm.
    pub needs: AlgorithmNeeds,
    /// Why a group like this cannot use it, if it cannot.
    pub refusal: Option<String>,
    /// The verifier's verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The schedule in text form.
    pub text: String,
}

/// Makes the schedule of an algorithm for a group, and verifies it for the memory that its ranks
/// map.
///
/// # Errors
/// There is no such algorithm, call or rank.
pub fn plan(request: &PlanRequest) -> Result<PlanAnswer, PlannerError> {
    let call = request.call.checked(RANKS_MAX)?;
    let collective = call.collective.name();
    let selection = select(collective, &request.algorithm).map_err(PlannerError::Algorithm)?;
    // An algorithm that needs more memory than the group maps has a schedule all the same; see
    // `refusal`.
    if call.refusal(&selection, Reach::All) == Some(Refusal::EqualSizes) {
        return Err(PlannerError::Sizes {
            collective,
            algorithm: selection.name(),
        });
    }
    let schedules = call.build(&selection);
    let shown = match request.rank {
        None => schedules.as_slice(),
        Some(rank) => {
            let none = PlannerError::Rank {
                field: "rank",
                rank,
                ranks: call.ranks,
            };
            let rank = rank as usize;
            schedules.get(rank..=rank).ok_or(none)?
        }
    };
    let refusal = call.refusal(&selection, Reach::across(call.ranks_of_hosts.len()));
    let requires = selection.requires_in(&call.topology);
    let hosts = Some(call.hosts.clone());
    Ok(PlanAnswer {
        collective,
        algorithm: selection.name(),
        summary: selection.algorithm.summary,
        ranks: call.ranks,
        needs: AlgorithmNeeds::of(requires),
        refusal: refusal.map(|refusal| call.explained(refusal)),
        verdict: verdict(&schedules, call.verified_mapping(requires), hosts),
        text: print(shown),
        hosts: call.ranks_of_hosts,
    })
}
