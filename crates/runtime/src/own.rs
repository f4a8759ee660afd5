//! Users' own schedules: verified for the group before it may run them.

use std::sync::Arc;

use weft_algorithms::{Parts, Reach, Requirements};
use weft_schedule::{Grid, Mapped, Schedule, VerifyOptions, print, verify};

use crate::Error;
use crate::call::mix;
use crate::geometry::fits;
use crate::group::{Group, closed};
use crate::group_state::GroupState;
use crate::plan::Plan;
use crate::policy::Tiling;
use crate::ways::{Own, Way};

impl Group {
    /// Lets calls name schedules of the user's own as their algorithm.
    ///
    /// `schedules` are the programs of all ranks, for one collective. They are verified for what the ranks of this group map of each other.
    /// Every rank adds the same: calls of different ones under one name are told as [`Error::Desync`].
    ///
    /// # Errors
    /// [`Error::Config`], with the verifier's message where the schedules are wrong; where they do not suit the group; and
    /// where the name is taken.
    pub fn add_schedule(&self, name: &str, schedules: Vec<Schedule>) -> Result<(), Error> {
        self.check_usable()?;
        let refuse = |why: String| Error::Config(format!("the schedule {name:?} {why}"));
        check_name(name)?;
        let own = self.own(name, schedules).map_err(refuse)?;
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.add_own(own)
        })
    }

    fn own(&self, name: &str, schedules: Vec<Schedule>) -> Result<Own, String> {
        let programs = schedules.len();
        if programs != self.size() as usize {
            return Err(format!(
                "has {programs} programs, but the group has {} ranks",
                self.size()
            ));
        }
        self.verified(&schedules)?;
        let hash = (schedules.iter())
            .flat_map(|schedule| print(std::slice::from_ref(schedule)).into_bytes())
            .fold(1, |hash, byte| mix(hash, u64::from(byte)));
        let schedule = schedules
            .into_iter()
            .nth(self.rank() as usize)
            .ok_or("lacks this rank's program")?;
        Ok(Own {
            name: name.into(),
            collective: schedule.collective,
            requires: Requirements {
                // What was verified for this group's hosts runs in this group.
                mapped: Reach::None,
                symmetric: false,
                per_rank_sizes: matches!(schedule.grid, Grid::Blocks(_)),
                reproducible: false,
                parts: Parts::None,
            },
            schedule,
            hash,
        })
    }

    /// Refuses what is not right where the ranks of a host read each other's temporary memory, and others nothing.
    fn verified(&self, schedules: &[Schedule]) -> Result<(), String> {
        let options = VerifyOptions {
            hosts: Some(self.hosts()),
            ..VerifyOptions::mapped(Mapped::Scratch)
        };
        match verify(schedules, &options.one_tile()) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("is refused: {error}")),
        }
    }
}

impl GroupState {
    fn add_own(&mut self, own: Own) -> Result<(), Error> {
        let maps = |rank| self.maps(rank);
        let own = Arc::new(own);
        let way = Way::own(own.clone(), Tiling::default());
        Plan::compile(own.schedule.clone(), &way, &maps)?;
        if !fits(&own.schedule, self.layout) {
            return Err(Error::Unsupported(format!(
                "the schedule {:?}: its temporary memory does not fit",
                own.name
            )));
        }
        self.chooser.catalog.add_own(own)
    }
}

/// Names of algorithms, so that they can stand wherever those do.
fn check_name(name: &str) -> Result<(), Error> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.chars().all(good) {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the name {name:?} of a schedule must be of letters, digits, and - _ ."
    )))
}
