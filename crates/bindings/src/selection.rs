//! Python classes of algorithm selection: profiles, user schedules and explanations.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use weft_runtime::{Profile, ProfileRow, Schedules, Tiling};

/// A row of a profile: (up_to_bytes, algorithm, tile_bytes, tiles_in_flight).
type RowArgument = (Option<u64>, String, Option<u64>, Option<u32>);

/// A profile: (source, ranks_per_host, required, rows by collective, schedules by name, domains).
pub(crate) type ProfileArgument = (
    String,
    Vec<u32>,
    bool,
    BTreeMap<String, Vec<RowArgument>>,
    Schedules,
    Vec<Vec<u32>>,
);

/// Profiles from Python as the runtime's.
pub(crate) fn profiles(arguments: Vec<ProfileArgument>) -> Vec<Profile> {
    let row = |(up_to_bytes, algorithm, tile_bytes, tiles_in_flight): RowArgument| ProfileRow {
        up_to_bytes,
        algorithm,
        tiling: Tiling {
            tile_bytes,
            tiles_in_flight,
        },
    };
    let profile =
        |(source, ranks_per_host, required, rows, schedules, domains): ProfileArgument| Profile {
            source,
            ranks_per_host,
            domains,
            required,
            table: rows
                .into_iter()
                .map(|(collective, rows)| (collective, rows.into_iter().map(row).collect()))
                .collect(),
            schedules,
        };
    arguments.into_iter().map(profile).collect()
}

/// The explanation of the choice for a call.
#[pyclass(name = "Explanation", frozen, get_all, module = "weft._weft")]
pub(crate) struct PyExplanation {
    /// The algorithm's name, with its parts.
    algorithm: String,
    /// The requested tile size in bytes; None for the largest that fits.
    asked_tile_bytes: Option<u64>,
    /// The requested number of concurrent tiles; None for as many as possible.
    asked_tiles_in_flight: Option<u32>,
    /// Bytes of the largest chunk in one tile.
    tile_bytes: u64,
    /// The number of tiles.
    tiles: u64,
    /// The most concurrent tiles.
    tiles_in_flight: u32,
    /// The plan's hash.
    hash: u64,
    /// All ranks' programs in text form, for a user schedule.
    schedule: Option<String>,
    /// The reasons for or against each candidate.
    why: Vec<String>,
}

impl From<weft_runtime::Explanation> for PyExplanation {
    fn from(explanation: weft_runtime::Explanation) -> Self {
        PyExplanation {
            algorithm: explanation.algorithm,
            asked_tile_bytes: explanation.requested.tile_bytes,
            asked_tiles_in_flight: explanation.requested.tiles_in_flight,
            tile_bytes: explanation.tile_bytes,
            tiles: explanation.tiles,
            tiles_in_flight: explanation.tiles_in_flight,
            hash: explanation.hash,
            schedule: explanation.schedule,
            why: explanation.why,
        }
    }
}

/// A user schedule of a group.
#[pyclass(name = "UserSchedule", frozen, get_all, module = "weft._weft")]
pub(crate) struct PyUserSchedule {
    /// The name in calls.
    name: String,
    /// The collective.
    collective: String,
    /// The root; None if the collective has none.
    root: Option<u32>,
    /// Whether it needs symmetric memory.
    symmetric: bool,
    /// Whether it combines each element's contributions in one step, in the order of ranks.
    reproducible: bool,
    /// All ranks' programs in text form.
    text: String,
}

impl From<weft_runtime::UserScheduleText> for PyUserSchedule {
    fn from(own: weft_runtime::UserScheduleText) -> Self {
        PyUserSchedule {
            name: own.name,
            collective: own.collective.name().to_owned(),
            root: own.collective.root(),
            symmetric: own.symmetric,
            reproducible: own.reproducible,
            text: own.text,
        }
    }
}
