//! Python types of algorithm selection: profiles, user schedules and explanations.

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

/// What a call would run by.
#[pyclass(frozen, get_all, module = "weft._weft")]
pub(crate) struct Explanation {
    /// The algorithm's name, with its parts.
    algorithm: String,
    /// The tile size that was asked for, in bytes; None for as large as fits.
    asked_tile_bytes: Option<u64>,
    /// The number of tiles under way that was asked for; None for as many as possible.
    asked_tiles_in_flight: Option<u32>,
    /// The part of the largest chunk that one tile takes, in bytes.
    tile_bytes: u64,
    /// The number of tiles.
    tiles: u64,
    /// How many of them may be under way at once.
    tiles_in_flight: u32,
    /// Tells plans apart.
    hash: u64,
    /// All ranks' programs in text form, where it is a user schedule.
    schedule: Option<String>,
    /// What was considered, and why it was chosen or not.
    why: Vec<String>,
}

impl From<weft_runtime::Explanation> for Explanation {
    fn from(explanation: weft_runtime::Explanation) -> Self {
        Explanation {
            algorithm: explanation.algorithm,
            asked_tile_bytes: explanation.asked.tile_bytes,
            asked_tiles_in_flight: explanation.asked.tiles_in_flight,
            tile_bytes: explanation.tile_bytes,
            tiles: explanation.tiles,
            tiles_in_flight: explanation.tiles_in_flight,
            hash: explanation.hash,
            schedule: explanation.schedule,
            why: explanation.why,
        }
    }
}

/// A user schedule, as a group knows it.
#[pyclass(frozen, get_all, module = "weft._weft")]
pub(crate) struct UserSchedule {
    /// How calls name it.
    name: String,
    /// What it carries out.
    collective: String,
    /// The root that it is for; None where there is none.
    root: Option<u32>,
    /// Whether it runs on symmetric memory only.
    symmetric: bool,
    /// Whether it combines every element's contributions at once, in the order of ranks.
    reproducible: bool,
    /// All ranks' programs in text form.
    text: String,
}

impl From<weft_runtime::UserScheduleText> for UserSchedule {
    fn from(own: weft_runtime::UserScheduleText) -> Self {
        UserSchedule {
            name: own.name,
            collective: own.collective.name().to_owned(),
            root: own.collective.root(),
            symmetric: own.symmetric,
            reproducible: own.reproducible,
            text: own.text,
        }
    }
}
