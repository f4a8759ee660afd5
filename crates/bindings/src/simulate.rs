//! The function `simulate`: what calls take on machines that need not exist.

use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weft_algorithms::{Selection, family, select};
use weft_schedule::{Mapped, Schedule, TileLimits, parse};
use weft_simulate::{
    Error, Job, Machine, PlayOptions, PlaySymmetry, Played, Source, closed_form, play,
};

use crate::json;
use crate::machine::machine;
use crate::question::{Question, Setting};
use crate::trace::{TraceEvent, events};
use crate::verify::verdict;

/// Twice as many ranks as are promised.
const RANKS_MAX: u32 = 200_000;
/// Elements of messages: their size matters where few bytes are cut into many chunks.
const ELEMENT_BYTES: u64 = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulateQuestion {
    call: Question,
    /// What is not as by default.
    machine: Value,
    /// All that make sense, if it is left out.
    algorithms: Option<Vec<String>>,
    #[serde(default)]
    schedules: Vec<Named>,
    /// The sizes of messages.
    bytes: Vec<u64>,
    tile_bytes: Option<u64>,
    tiles_in_flight: Option<u32>,
    /// Whether algorithms are played; schedules always are.
    #[serde(default)]
    event_driven: bool,
    /// How many steps may be played; as many as there are, if it is left out.
    work_max: Option<u64>,
    /// Whether what needs more temporary memory than the executor has is told for ranks that have enough.
    #[serde(default)]
    enough_memory: bool,
    /// Whether it is told what happens in a play.
    #[serde(default)]
    trace: bool,
}

/// A schedule of the user's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    text: String,
}

#[derive(Serialize)]
struct SimulateAnswer {
    rows: Vec<Row>,
}

/// One algorithm or schedule.
#[derive(Serialize, Default)]
struct Row {
    algorithm: String,
    summary: String,
    /// Why it cannot be taken, if it cannot.
    refusal: Option<String>,
    /// What is taken as given that no executor has, if anything.
    assumption: Option<String>,
    /// By size: when the last rank was done.
    times_s: Vec<f64>,
    /// Whether every rank was played, or some stood for all; empty for closed forms.
    mode: String,
    events: Vec<TraceEvent>,
}

/// Times of calls on a machine, by algorithm and size. JSON in and out.
#[pyfunction]
pub(crate) fn simulate(py: Python<'_>, question: &str) -> PyResult<String> {
    json::answered(py, question, |question: SimulateQuestion| {
        let setting = question.call.setting(RANKS_MAX)?;
        let machine = machine(&question.machine, &setting.ranks_of_hosts)?;
        machine.check().map_err(|error| error.to_string())?;
        if let Some(bytes) = question.bytes.iter().find(|bytes| **bytes < ELEMENT_BYTES) {
            return Err(format!(
                "bytes={bytes}: at least {ELEMENT_BYTES}, the size of an element"
            ));
        }
        let study = Study {
            question: &question,
            setting: &setting,
            machine: &machine,
        };
        let collective = setting.collective.name();
        let selections = match &question.algorithms {
            None => family(collective, &setting.topology),
            Some(names) => {
                let named = names.iter().map(|name| select(collective, name));
                named.collect::<Result<_, _>>()?
            }
        };
        let mut rows: Vec<Row> = selections.iter().map(|s| study.selection(s)).collect();
        for named in &question.schedules {
            rows.push(study.schedule(named)?);
        }
        Ok(SimulateAnswer { rows })
    })
}

/// A question that makes sense.
struct Study<'a> {
    question: &'a SimulateQuestion,
    setting: &'a Setting,
    machine: &'a Machine,
}

impl Study<'_> {
    fn selection(&self, selection: &Selection) -> Row {
        let mut row = Row {
            algorithm: selection.name(),
            summary: selection.algorithm.summary.to_owned(),
            ..Row::default()
        };
        row.refusal = self.setting.refusal(selection);
        if row.refusal.is_none() {
            let built;
            let schedules = match self.question.trace {
                true => {
                    let requests = (0..self.setting.ranks).map(|rank| self.setting.request(rank));
                    built = requests.map(|r| selection.build(&r)).collect::<Vec<_>>();
                    built.as_slice()
                }
                false => &[],
            };
            self.fill(&mut row, Source::Selection(selection), schedules);
        }
        row
    }

    /// Schedules are verified before they are played.
    fn schedule(&self, named: &Named) -> Result<Row, String> {
        let schedules =
            parse(&named.text).map_err(|error| format!("schedule {:?}: {error}", named.name))?;
        let mapped = match self.setting.mapped_user_memory() {
            true => Mapped::All,
            false => Mapped::Scratch,
        };
        let verdict = verdict(&schedules, mapped, Some(self.setting.hosts.clone()));
        if let Some(objection) = verdict.objection() {
            return Err(format!("schedule {:?}: {objection}", named.name));
        }
        let mut row = Row {
            algorithm: named.name.clone(),
            ..Row::default()
        };
        self.fill(&mut row, Source::Schedules(&schedules), &schedules);
        Ok(row)
    }

    /// Adds the times, or why there are none.
    fn fill(&self, row: &mut Row, source: Source<'_>, schedules: &[Schedule]) {
        for bytes in &self.question.bytes {
            let mut job = self.job(source, *bytes);
            let mut found = self.time(&job);
            if self.question.enough_memory
                && let Err(Error::TemporaryMemory { .. }) = found
            {
                let executor = TileLimits::of_group(self.setting.ranks);
                row.assumption = Some(assumption(*bytes, executor));
                job.limits = Some(TileLimits {
                    landing_bytes: u64::MAX,
                    scratch_bytes: u64::MAX,
                    ..executor
                });
                found = self.time(&job);
            }
            match found {
                Ok((seconds, played)) => {
                    row.times_s.push(seconds);
                    if let Some(played) = played {
                        row.mode = played.mode.to_string();
                        row.events
                            .extend(events(&played.trace, schedules, &self.setting.hosts));
                    }
                }
                Err(error) => {
                    row.refusal = Some(match error {
                        Error::Work { .. } => {
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

    fn time(&self, job: &Job<'_>) -> Result<(f64, Option<Played>), Error> {
        let plays = self.question.event_driven
            || self.question.trace
            || matches!(job.source, Source::Schedules(_));
        match plays {
            false => closed_form(self.machine, job).map(|seconds| (seconds, None)),
            true => self.play(job).map(|played| (played.seconds, Some(played))),
        }
    }

    fn play(&self, job: &Job<'_>) -> Result<Played, Error> {
        // Everybody is wanted in a picture.
        let symmetry = match self.question.trace {
            true => PlaySymmetry::Off,
            false => PlaySymmetry::Auto,
        };
        let options = PlayOptions {
            symmetry,
            trace: self.question.trace,
            work_max: self.question.work_max,
        };
        play(self.machine, job, &options)
    }

    fn job<'b>(&'b self, source: Source<'b>, bytes: u64) -> Job<'b> {
        let job = Job::new(source, self.setting.collective, bytes, self.setting.ranks);
        Job {
            element_bytes: ELEMENT_BYTES,
            memory: self.setting.memory,
            topology: Some(&self.setting.topology),
            tile_bytes: self.question.tile_bytes,
            tiles_in_flight: self.question.tiles_in_flight.unwrap_or(job.tiles_in_flight),
            ..job
        }
    }
}

/// Says that more temporary memory is taken as given than the executor of such a group has.
fn assumption(bytes: u64, executor: TileLimits) -> String {
    format!(
        "has more temporary memory for {bytes} bytes than the {} bytes from each peer and {} of its own that a tile of such a group has",
        executor.landing_bytes, executor.scratch_bytes
    )
}
