//! The function `verify`: what the verifier says of schedules in text form.

use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use weft_schedule::{Grid, Mapped, Report, Schedule, Traffic, VerifyError, VerifyOptions, parse};

use crate::json;
use crate::placement::Hosts;

/// Up to so many ranks several tiles and operations are played; above, one tile, which says the same.
const RANKS_OF_SEVERAL_TILES: usize = 9;

/// What the verifier shall assume.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    mapped: Reach,
    hosts: Option<Hosts>,
}

/// Which memory of its peers a rank reaches.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reach {
    None,
    Scratch,
    All,
}

/// What was found out.
#[derive(Serialize)]
pub(crate) struct Verdict {
    verified: bool,
    problem: Option<Complaint>,
    report: Option<Findings>,
}

/// Why schedules are refused, and where.
#[derive(Serialize)]
struct Complaint {
    message: String,
    rank: Option<u32>,
    tile: Option<u32>,
    step: Option<u32>,
    chunk: Option<u32>,
    line: Option<u32>,
    column: Option<u32>,
}

/// What right schedules cost and compute.
#[derive(Serialize)]
struct Findings {
    collective: &'static str,
    root: Option<u32>,
    ranks: u32,
    chunks: u32,
    latency_steps: u32,
    /// By rank: what it writes to other ranks' memory, as a share of the message.
    sent: Vec<Option<f64>>,
    /// By rank: what it reads from other ranks' memory, as a share of the message.
    read: Vec<Option<f64>>,
    /// By chunk: in which order contributions are combined.
    trees: Vec<String>,
    /// Whether that is at once, in the order of ranks.
    reproducible: bool,
}

/// Reads schedules and verifies them. JSON in and out.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, text: &str, options: &str) -> PyResult<String> {
    json::answered(py, options, |options: Options| {
        let schedules = match parse(text) {
            Ok(schedules) => schedules,
            Err(error) => return Ok(Verdict::unreadable(&error)),
        };
        let mapped = match options.mapped {
            Reach::None => Mapped::None,
            Reach::Scratch => Mapped::Scratch,
            Reach::All => Mapped::All,
        };
        let ranks = schedules.len() as u32;
        let hosts = options.hosts.map(|hosts| hosts.of_ranks(ranks));
        Ok(verdict(&schedules, mapped, hosts.transpose()?))
    })
}

/// What the verifier says of the schedules of all ranks.
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
    /// What the verifier objects to, if it does.
    pub(crate) fn objection(&self) -> Option<&str> {
        self.problem
            .as_ref()
            .map(|problem| problem.message.as_str())
    }

    fn refused(error: &VerifyError) -> Self {
        Verdict::not(Complaint {
            message: error.to_string(),
            rank: error.rank,
            tile: error.tile,
            step: error.step,
            chunk: error.chunk,
            line: None,
            column: None,
        })
    }

    fn unreadable(error: &weft_schedule::ParseError) -> Self {
        Verdict::not(Complaint {
            message: error.to_string(),
            rank: None,
            tile: None,
            step: None,
            chunk: None,
            line: Some(error.line),
            column: Some(error.column),
        })
    }

    fn not(problem: Complaint) -> Self {
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
