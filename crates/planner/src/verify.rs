//! The verifier's judgement of schedules in text form.

use serde::{Deserialize, Serialize};
use weft_schedule::{Grid, Mapped, Report, Schedule, Traffic, VerifyError, VerifyOptions, parse};

use crate::{Hosts, PlannerError};

/// Up to this many ranks several tiles and operations are simulated; above, one tile, which gives
/// the same result.
const RANKS_OF_SEVERAL_TILES: usize = 9;

/// Asks whether schedules are right.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifyRequest {
    /// The programs of all ranks in text form.
    pub text: String,
    /// Which memory of its peers a rank reaches.
    #[serde(with = "MappedName")]
    pub mapped: Mapped,
    /// All ranks are on one host, if it is left out.
    pub hosts: Option<Hosts>,
}

/// [`Mapped`] as requests write it.
#[derive(Deserialize)]
#[serde(remote = "Mapped", rename_all = "lowercase")]
enum MappedName {
    None,
    Scratch,
    All,
}

/// The result of a verification.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// Whether the schedules are right.
    pub verified: bool,
    /// Why not, if they are wrong.
    pub problem: Option<ProblemReport>,
    /// Their costs and results, if they are right.
    pub report: Option<Findings>,
}

/// Why schedules are refused, and where.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProblemReport {
    /// The whole message.
    pub message: String,
    /// The rank, if it is known.
    pub rank: Option<u32>,
    /// The tile, if it is known.
    pub tile: Option<u32>,
    /// The step of the rank's program, if it is known.
    pub step: Option<u32>,
    /// The chunk, if it is known.
    pub chunk: Option<u32>,
    /// The line of the text, where it cannot be read.
    pub line: Option<u32>,
    /// The column of the text, where it cannot be read.
    pub column: Option<u32>,
}

/// Costs and results of right schedules.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Findings {
    /// The name of the collective.
    pub collective: &'static str,
    /// The root of a rooted collective.
    pub root: Option<u32>,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of chunks that a message is divided into.
    pub chunks: u32,
    /// The longest chain of signals.
    pub latency_steps: u32,
    /// By rank: its writes to other ranks' memory, as a share of the message.
    pub sent: Vec<Option<f64>>,
    /// By rank: its reads from other ranks' memory, as a share of the message.
    pub read: Vec<Option<f64>>,
    /// By chunk: in which order contributions are combined.
    pub trees: Vec<String>,
    /// Whether that is one reduction, in the order of ranks.
    pub reproducible: bool,
}

/// Reads schedules and verifies them. That they are wrong is an answer.
///
/// # Errors
/// There are no such hosts for their ranks.
pub fn verify(request: &VerifyRequest) -> Result<Verdict, PlannerError> {
    let schedules = match parse(&request.text) {
        Ok(schedules) => schedules,
        Err(error) => return Ok(Verdict::unreadable(&error)),
    };
    let ranks = schedules.len() as u32;
    let hosts = request.hosts.as_ref().map(|hosts| hosts.of_ranks(ranks));
    Ok(verdict(&schedules, request.mapped, hosts.transpose()?))
}

/// The verifier's verdict on the schedules of all ranks.
pub(crate) fn verdict(schedules: &[Schedule], mapped: Mapped, hosts: Option<Vec<u32>>) -> Verdict {
    let options = VerifyOptions {
        hosts,
        ..VerifyOptions::mapped(mapped)
    };
    let options = match schedules.len() {
        ..=RANKS_OF_SEVERAL_TILES => options,
        _ => options.one_tile(),
    };
    match weft_schedule::verify(schedules, &options) {
        Ok(report) => Verdict {
            verified: true,
            problem: None,
            report: Some(Findings::of(&schedules[0], &report)),
        },
        Err(error) => Verdict::refused(&error),
    }
}

impl Verdict {
    fn refused(error: &VerifyError) -> Self {
        Verdict::wrong(ProblemReport {
            message: error.to_string(),
            rank: error.rank,
            tile: error.tile,
            step: error.step,
            chunk: error.chunk,
            ..ProblemReport::default()
        })
    }

    fn unreadable(error: &weft_schedule::ParseError) -> Self {
        Verdict::wrong(ProblemReport {
            message: error.to_string(),
            line: Some(error.line),
            column: Some(error.column),
            ..ProblemReport::default()
        })
    }

    fn wrong(problem: ProblemReport) -> Self {
        Verdict {
            verified: false,
            problem: Some(problem),
            report: None,
        }
    }
}

impl Findings {
    fn of(first: &Schedule, report: &Report) -> Self {
        Findings {
            collective: first.collective.name(),
            root: first.collective.root(),
            ranks: first.ranks,
            chunks: first.grid.chunks(),
            latency_steps: report.latency_steps,
            sent: shares(&report.sent, &first.grid),
            read: shares(&report.read, &first.grid),
            trees: report.trees.clone(),
            reproducible: report.is_canonical(),
        }
    }
}

fn shares(traffic: &[Traffic], grid: &Grid) -> Vec<Option<f64>> {
    let share = |traffic: &Traffic| {
        let share = traffic.share(grid)?;
        Some(share.numerator as f64 / share.denominator as f64)
    };
    traffic.iter().map(share).collect()
}
