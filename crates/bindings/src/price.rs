//! The functions `family` and `price`: which choices there are for a group, and what each would cost on a machine.

use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use weft_algorithms::{Memory, Reach, Selection, Topology, select};
use weft_schedule::{Collective, Schedule, parse};
use weft_simulate::{Job, Machine, PlayOptions, Source, closed_form, play};

use crate::json;
use crate::question::collective;

/// Which choices there are for a collective.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FamilyQuestion {
    collective: String,
    ranks_per_host: Vec<u32>,
    /// Levels of domains inside hosts, innermost first: for each level the domain of each rank.
    #[serde(default)]
    domains: Vec<Vec<u32>>,
}

/// What jobs cost, each on one of the machines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceQuestion {
    machines: Vec<Machine>,
    jobs: Vec<JobQuestion>,
    /// Levels of domains inside the hosts of every machine.
    #[serde(default)]
    domains: Vec<Vec<u32>>,
    /// Users' own schedules, in text form.
    #[serde(default)]
    schedules: Vec<String>,
    method: Method,
}

/// What they cost.
#[derive(Serialize)]
struct Prices {
    /// The seconds that each job takes.
    seconds: Vec<f64>,
}

/// A call on ordinary memory, root 0.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobQuestion {
    /// Where it stands among the machines.
    machine: usize,
    collective: String,
    algorithm: String,
    /// Where its text stands among the schedules, if it is one of the user's own. Those are always played.
    schedule: Option<usize>,
    bytes: u64,
    element_bytes: u64,
    tile_bytes: Option<u64>,
    tiles_in_flight: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Method {
    ClosedForm,
    Play,
}

/// The names of all choices that a group of hosts with so many ranks has on ordinary memory.
#[pyfunction]
pub(crate) fn family(py: Python<'_>, question: &str) -> PyResult<String> {
    json::answered(py, question, |question: FamilyQuestion| {
        let hosts = question.ranks_per_host;
        let of_rank = (hosts.iter().zip(0..))
            .flat_map(|(ranks, host)| std::iter::repeat_n(host, *ranks as usize));
        let topology = Topology::domains(&question.domains, &of_rank.collect::<Vec<u32>>())?;
        let runs = |needs: weft_algorithms::Requirements| {
            !needs.symmetric && (hosts.len() == 1 || needs.mapped != Reach::All)
        };
        let family = weft_algorithms::family(&question.collective, &topology);
        let family = family
            .iter()
            .filter(|choice| runs(choice.requires_in(&topology)));
        Ok(family.map(|choice| choice.name()).collect::<Vec<_>>())
    })
}

/// What each job costs.
#[pyfunction]
pub(crate) fn price(py: Python<'_>, question: &str) -> PyResult<String> {
    json::answered(py, question, |question: PriceQuestion| {
        let own = (question.schedules.iter()).map(|text| parse(text).map_err(|e| e.to_string()));
        let own: Vec<Vec<Schedule>> = own.collect::<Result<_, _>>()?;
        let mut prices = Prices {
            seconds: Vec::with_capacity(question.jobs.len()),
        };
        for job in &question.jobs {
            let Some(machine) = question.machines.get(job.machine) else {
                return Err(format!(
                    "machine {}: there are {}",
                    job.machine,
                    question.machines.len()
                ));
            };
            let maker = job.maker(&own)?;
            let source = maker.source();
            let topology = topology(machine, &question.domains)?;
            let seconds = job.seconds(machine, &topology, source, question.method)?;
            prices.seconds.push(seconds);
        }
        Ok(prices)
    })
}

/// A machine's hosts, and these domains inside them.
fn topology(machine: &Machine, domains: &[Vec<u32>]) -> Result<Topology, String> {
    let hosts = machine.topology();
    let of_rank: Vec<u32> = (0..hosts.ranks())
        .map(|rank| hosts.unit_of(0, rank))
        .collect();
    Topology::domains(domains, &of_rank)
}

/// What makes a job's programs.
enum Maker<'a> {
    Family(Selection),
    Own(&'a [Schedule]),
}

impl Maker<'_> {
    fn source(&self) -> Source<'_> {
        match self {
            Maker::Family(selection) => Source::Selection(selection),
            Maker::Own(schedules) => Source::Schedules(schedules),
        }
    }
}

impl JobQuestion {
    fn maker<'a>(&self, own: &'a [Vec<Schedule>]) -> Result<Maker<'a>, String> {
        let Some(place) = self.schedule else {
            return Ok(Maker::Family(select(&self.collective, &self.algorithm)?));
        };
        match own.get(place) {
            Some(schedules) => Ok(Maker::Own(schedules)),
            None => Err(format!("schedule {place}: there are {}", own.len())),
        }
    }

    /// The collective; the root, where there is one, is rank 0.
    fn collective(&self, ranks: u32) -> Result<Collective, String> {
        let rooted = ["reduce", "broadcast", "gather", "scatter"];
        let root = rooted.contains(&self.collective.as_str()).then_some(0);
        collective(&self.collective, root, ranks)
    }

    fn seconds(
        &self,
        machine: &Machine,
        topology: &Topology,
        source: Source<'_>,
        method: Method,
    ) -> Result<f64, String> {
        let ranks = machine.ranks();
        let collective = self.collective(ranks)?;
        let mut job = Job::new(source, collective, self.bytes, ranks);
        job.element_bytes = self.element_bytes;
        job.memory = Memory::Ordinary;
        job.topology = Some(topology);
        job.tile_bytes = self.tile_bytes;
        if let Some(tiles) = self.tiles_in_flight {
            job.tiles_in_flight = tiles;
        }
        let named = |error: weft_simulate::Error| format!("{}: {error}", self.algorithm);
        match method {
            Method::ClosedForm if self.schedule.is_none() => {
                closed_form(machine, &job).map_err(named)
            }
            Method::ClosedForm | Method::Play => play(machine, &job, &PlayOptions::default())
                .map(|played| played.seconds)
                .map_err(named),
        }
    }
}
