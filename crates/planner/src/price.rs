//! The seconds that jobs take on machines, by the simulator.

use serde::{Deserialize, Serialize};
use weft_algorithms::{MemoryClass, Topology, select};
use weft_schedule::{Schedule, parse};
use weft_simulate::{Job, Machine, ProgramSource, SimulationOptions, closed_form, simulate};

use crate::PlannerError;
use crate::call::collective;

/// A request for the times of jobs, each on one of the machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceRequest {
    /// The machines that jobs run on.
    pub machines: Vec<Machine>,
    /// The jobs to price.
    pub jobs: Vec<JobRequest>,
    /// Levels of domains inside the hosts of every machine.
    #[serde(default)]
    pub domains: Vec<Vec<u32>>,
    /// User schedules, in text form.
    #[serde(default)]
    pub schedules: Vec<String>,
    /// The method.
    pub method: PriceMethod,
}

/// A call on ordinary memory; the root, where there is one, is rank 0.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// Where the machine stands among the machines.
    pub machine: usize,
    /// The name of the collective.
    pub collective: String,
    /// The algorithm's name, with or without its parts.
    pub algorithm: String,
    /// Where its text stands among the schedules, if it is one of the user's own. Those are always
    /// simulated.
    pub schedule: Option<usize>,
    /// The size of the message.
    pub bytes: u64,
    /// The size of an element.
    pub element_bytes: u64,
    /// How large tiles are; as large as fits, if it is left out.
    pub tile_bytes: Option<u64>,
    /// How many tiles a rank has under way; as many as the executor, if it is left out.
    pub tiles_in_flight: Option<u32>,
}

/// The method by which a job's time is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriceMethod {
    /// By a formula.
    ClosedForm,
    /// By simulating every step.
    EventDriven,
}

/// The times of jobs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PriceAnswer {
    /// The seconds that each job takes.
    pub seconds: Vec<f64>,
}

/// Returns the time of each job.
///
/// # Errors
/// A machine, job or schedule is invalid, or a job cannot run on its machine.
pub fn price(request: &PriceRequest) -> Result<PriceAnswer, PlannerError> {
    let texts = request.schedules.iter().enumerate();
    let own: Result<Vec<Vec<Schedule>>, PlannerError> = texts
        .map(|(index, text)| {
            parse(text).map_err(|error| PlannerError::Schedule {
                name: index.to_string(),
                why: error.to_string(),
            })
        })
        .collect();
    let own = own?;
    let seconds: Result<Vec<f64>, PlannerError> = (request.jobs.iter())
        .map(|job| {
            let machine = indexed("machine", &request.machines, job.machine)?;
            let topology = topology(machine, &request.domains)?;
            let selection;
            let source = match job.schedule {
                Some(index) => ProgramSource::Schedules(indexed("schedule", &own, index)?),
                None => {
                    selection =
                        select(&job.collective, &job.algorithm).map_err(PlannerError::Algorithm)?;
                    ProgramSource::Selection(&selection)
                }
            };
            job.seconds(machine, &topology, source, request.method)
        })
        .collect();
    Ok(PriceAnswer { seconds: seconds? })
}

fn indexed<'a, T>(what: &'static str, all: &'a [T], index: usize) -> Result<&'a T, PlannerError> {
    all.get(index).ok_or(PlannerError::Index {
        what,
        index,
        count: all.len(),
    })
}

/// A machine's hosts, and these domains inside them.
fn topology(machine: &Machine, domains: &[Vec<u32>]) -> Result<Topology, PlannerError> {
    Topology::domains(domains, &machine.host_of_rank()).map_err(PlannerError::Domains)
}

impl JobRequest {
    fn seconds(
        &self,
        machine: &Machine,
        topology: &Topology,
        source: ProgramSource<'_>,
        method: PriceMethod,
    ) -> Result<f64, PlannerError> {
        let ranks = machine.ranks();
        let collective = collective(&self.collective, None, ranks)?;
        let standard = Job::new(source, collective, self.bytes, ranks);
        let job = Job {
            element_bytes: self.element_bytes,
            memory: MemoryClass::Ordinary,
            topology: Some(topology),
            tile_bytes: self.tile_bytes,
            tiles_in_flight: self.tiles_in_flight.unwrap_or(standard.tiles_in_flight),
            ..standard
        };
        let seconds = match method {
            PriceMethod::ClosedForm if self.schedule.is_none() => closed_form(machine, &job),
            PriceMethod::ClosedForm | PriceMethod::EventDriven => {
                simulate(machine, &job, &SimulationOptions::default())
                    .map(|simulated| simulated.seconds)
            }
        };
        seconds.map_err(|error| PlannerError::Job {
            algorithm: self.algorithm.clone(),
            error,
        })
    }
}
