//! The seconds that calls take on machines that need not exist.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weft_algorithms::{MemoryClass, Selection, family, select};
use weft_schedule::{Mapped, Schedule, TileLimits, parse};
use weft_simulate::{
    Job, Machine, ProgramSource, SimulationOptions, SimulationResult, SimulationSymmetry,
    closed_form,
};

use crate::call::CheckedCall;
use crate::machine::machine;
use crate::trace::{TraceEvent, events};
use crate::verify::verdict;
use crate::{CallRequest, PlannerError};

/// Twice as many ranks as are promised.
const RANKS_MAX: u32 = 200_000;
/// Elements of messages: their size matters where few bytes are cut into many chunks.
const ELEMENT_BYTES: u64 = 4;

/// A request for the times of a call by several algorithms, at several sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulateRequest {
    /// The call, and the ranks that make it.
    pub call: CallRequest,
    /// The fields of [`Machine`] that are not as by default; its hosts are those of the call.
    pub machine: Value,
    /// All that make sense, if it is left out.
    pub algorithms: Option<Vec<String>>,
    /// User schedules.
    #[serde(default)]
    pub schedules: Vec<NamedSchedule>,
    /// The sizes of messages.
    pub bytes: Vec<u64>,
    /// How large tiles are; as large as fits, if it is left out.
    pub tile_bytes: Option<u64>,
    /// How many tiles a rank has under way; as many as the executor, if it is left out.
    pub tiles_in_flight: Option<u32>,
    /// Whether algorithms are simulated; schedules always are.
    #[serde(default)]
    pub event_driven: bool,
    /// How many steps may be simulated; as many as there are, if it is left out.
    pub work_max: Option<u64>,
    /// Whether calls that need more temporary memory than the executor has are simulated as if
    /// ranks had enough.
    #[serde(default)]
    pub enough_memory: bool,
    /// Whether the events of a simulation are returned.
    #[serde(default)]
    pub trace: bool,
}

/// A schedule of the user's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSchedule {
    /// How the answer names it.
    pub name: String,
    /// The programs of all ranks in text form.
    pub text: String,
}

/// The times of the call.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SimulateAnswer {
    /// The algorithms in the order of the request, then the schedules.
    pub rows: Vec<Simulated>,
}

/// One algorithm or schedule.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Simulated {
    /// Its name, with its parts.
    pub algorithm: String,
    /// One line of description; empty for schedules.
    pub summary: String,
    /// Why it cannot be used, if it cannot.
    pub refusal: Option<String>,
    /// The assumption that no executor meets, if any.
    pub assumption: Option<String>,
    /// By size: when the last rank was done.
    pub times_s: Vec<f64>,
    /// Whether every rank was simulated, or some stood for all; empty for closed forms.
    pub mode: String,
    /// The events, if they were requested.
    pub events: Vec<TraceEvent>,
}

/// Returns the times of calls on a machine, by algorithm and size.
///
/// # Errors
/// The call or the machine is invalid, there is no such algorithm, or a schedule is wrong.
pub fn simulate(request: &SimulateRequest) -> Result<SimulateAnswer, PlannerError> {
    let call = request.call.checked(RANKS_MAX)?;
    let machine = machine(&request.machine, &call.ranks_of_hosts)?;
    if let Some(bytes) = request.bytes.iter().find(|bytes| **bytes < ELEMENT_BYTES) {
        return Err(PlannerError::Bytes {
            bytes: *bytes,
            element_bytes: ELEMENT_BYTES,
        });
    }
    let collective = call.collective.name();
    let selections: Result<Vec<Selection>, String> = match &request.algorithms {
        None => Ok(family(collective, &call.topology)),
        Some(names) => (names.iter())
            .map(|name| select(collective, name))
            .collect(),
    };
    let study = CheckedSimulation {
        request,
        call: &call,
        machine: &machine,
    };
    let selections = selections.map_err(PlannerError::Algorithm)?;
    let rows = selections
        .iter()
        .map(|selection| Ok(study.selection(selection)));
    let own = request.schedules.iter().map(|named| study.schedule(named));
    let rows: Result<Vec<Simulated>, PlannerError> = rows.chain(own).collect();
    Ok(SimulateAnswer { rows: rows? })
}

/// A request that makes sense.
struct CheckedSimulation<'a> {
    request: &'a SimulateRequest,
    call: &'a CheckedCall,
    machine: &'a Machine,
}

impl CheckedSimulation<'_> {
    fn selection(&self, selection: &Selection) -> Simulated {
        let mut row = Simulated {
            algorithm: selection.name(),
            summary: selection.algorithm.summary.to_owned(),
            ..Simulated::default()
        };
        let refusal = self.call.refusal(selection, self.machine.mapped());
        row.refusal = refusal.map(|refusal| self.call.explained(refusal));
        if row.refusal.is_none() {
            let schedules = match self.request.trace {
                true => self.call.build(selection),
                false => Vec::new(),
            };
            self.fill(&mut row, ProgramSource::Selection(selection), &schedules);
        }
        row
    }

    /// Schedules are verified before they are simulated.
    fn schedule(&self, named: &NamedSchedule) -> Result<Simulated, PlannerError> {
        let refused = |why: String| PlannerError::Schedule {
            name: format!("{:?}", named.name),
            why,
        };
        let schedules = parse(&named.text).map_err(|error| refused(error.to_string()))?;
        let mapped = match self.call.memory {
            MemoryClass::Symmetric => Mapped::All,
            MemoryClass::Ordinary => Mapped::Scratch,
        };
        let verdict = verdict(&schedules, mapped, Some(self.call.hosts.clone()));
        if let Some(problem) = verdict.problem {
            return Err(refused(problem.message));
        }
        let mut row = Simulated {
            algorithm: named.name.clone(),
            ..Simulated::default()
        };
        self.fill(&mut row, ProgramSource::Schedules(&schedules), &schedules);
        Ok(row)
    }

    /// Adds the times, or why there are none.
    fn fill(&self, row: &mut Simulated, source: ProgramSource<'_>, schedules: &[Schedule]) {
        for bytes in &self.request.bytes {
            let mut job = self.job(source, *bytes);
            let mut found = self.time(&job);
            if self.request.enough_memory
                && let Err(weft_simulate::SimulationError::TemporaryMemory { enough, .. }) = found
            {
                // Unlimited memory would take more ranks for faster than fewer, whose tiles are
                // bounded.
                row.assumption = Some(assumption(*bytes, self.call.ranks, enough));
                job.limits = Some(enough);
                found = self.time(&job);
            }
            match found {
                Ok((seconds, simulated)) => {
                    row.times_s.push(seconds);
                    if let Some(simulated) = simulated {
                        row.mode = simulated.mode.to_string();
                        row.events
                            .extend(events(&simulated.trace, schedules, &self.call.hosts));
                    }
                }
                Err(error) => {
                    row.refusal = Some(match error {
                        weft_simulate::SimulationError::Work { .. } => {
                            format!("{error}; work_max, or --max-steps, allows more")
                        }
                        error => error.to_string(),
                    });
                    row.times_s.clear();
                    return;
                }
            }
        }
    }

    fn time(
        &self,
        job: &Job<'_>,
    ) -> Result<(f64, Option<SimulationResult>), weft_simulate::SimulationError> {
        let by_events = self.request.event_driven
            || self.request.trace
            || matches!(job.source, ProgramSource::Schedules(_));
        match by_events {
            false => closed_form(self.machine, job).map(|seconds| (seconds, None)),
            true => self
                .event_driven(job)
                .map(|simulated| (simulated.seconds, Some(simulated))),
        }
    }

    fn event_driven(
        &self,
        job: &Job<'_>,
    ) -> Result<SimulationResult, weft_simulate::SimulationError> {
        // A picture shows all ranks.
        let symmetry = match self.request.trace {
            true => SimulationSymmetry::Off,
            false => SimulationSymmetry::Auto,
        };
        let options = SimulationOptions {
            symmetry,
            trace: self.request.trace,
            work_max: self.request.work_max,
        };
        weft_simulate::simulate(self.machine, job, &options)
    }

    fn job<'b>(&'b self, source: ProgramSource<'b>, bytes: u64) -> Job<'b> {
        let job = Job::new(source, self.call.collective, bytes, self.call.ranks);
        Job {
            element_bytes: ELEMENT_BYTES,
            memory: self.call.memory,
            wire: self.call.wire,
            topology: Some(&self.call.topology),
            tile_bytes: self.request.tile_bytes,
            tiles_in_flight: self.request.tiles_in_flight.unwrap_or(job.tiles_in_flight),
            ..job
        }
    }
}

/// Says that more temporary memory is taken as given than the executor of such a group has.
fn assumption(bytes: u64, ranks: u32, enough: TileLimits) -> String {
    let executor = TileLimits::of_group(ranks);
    format!(
        "has more temporary memory for {bytes} bytes than the {} bytes from each peer and {} of its own that a tile of such a group has: {} and {}",
        executor.receive_bytes, executor.scratch_bytes, enough.receive_bytes, enough.scratch_bytes
    )
}
