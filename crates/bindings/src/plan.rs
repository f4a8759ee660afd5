//! The function `plan`: the schedule of an algorithm, and what the verifier says of it.

use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use weft_algorithms::{Selection, select};
use weft_schedule::{Rank, Schedule, print};

use crate::algorithm::Needs;
use crate::json;
use crate::question::{Question, Setting};
use crate::verify::{Verdict, verdict};

/// A schedule of this many ranks is verified within a minute.
const RANKS_MAX: u32 = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanQuestion {
    algorithm: String,
    /// Whose program is wanted; those of all ranks, if it is left out.
    rank: Option<Rank>,
    call: Question,
}

#[derive(Serialize)]
struct PlanAnswer {
    collective: &'static str,
    algorithm: String,
    summary: &'static str,
    ranks: u32,
    /// The number of ranks on each host.
    hosts: Vec<u32>,
    needs: Needs,
    /// Why a group like this cannot take it, if it cannot.
    refusal: Option<String>,
    #[serde(flatten)]
    verdict: Verdict,
    /// The schedule in text form.
    text: String,
}

/// The schedule of an algorithm for a group. JSON in and out.
#[pyfunction]
pub(crate) fn plan(py: Python<'_>, question: &str) -> PyResult<String> {
    json::answered(py, question, |question: PlanQuestion| {
        let setting = question.call.setting(RANKS_MAX)?;
        let selection = select(setting.collective.name(), &question.algorithm)?;
        let schedules = schedules(&setting, &selection)?;
        let shown = match question.rank {
            None => schedules.as_slice(),
            Some(rank) => schedules
                .get(rank as usize..=rank as usize)
                .ok_or_else(|| format!("rank={rank}: from 0 to {}", setting.ranks - 1))?,
        };
        let requires = selection.requires_in(&setting.topology);
        Ok(PlanAnswer {
            collective: selection.algorithm.collective,
            algorithm: selection.name(),
            summary: selection.algorithm.summary,
            ranks: setting.ranks,
            hosts: setting.ranks_of_hosts.clone(),
            needs: Needs::of(requires),
            refusal: setting.refusal(&selection),
            verdict: verdict(
                &schedules,
                setting.mapped(requires),
                Some(setting.hosts.clone()),
            ),
            text: print(shown),
        })
    })
}

/// The programs of all ranks.
pub(crate) fn schedules(setting: &Setting, selection: &Selection) -> Result<Vec<Schedule>, String> {
    if setting.per_rank_sizes() && !selection.requires().per_rank_sizes {
        return Err(format!(
            "sizes=\"per-rank\": {} {} knows blocks of equal size only",
            selection.algorithm.collective,
            selection.name()
        ));
    }
    Ok((0..setting.ranks)
        .map(|rank| selection.build(&setting.request(rank)))
        .collect())
}
