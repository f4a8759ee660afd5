//! User schedules of a group.

use weft_schedule::Schedule;

use super::{Group, closed};
use crate::Error;
use crate::selection::{UserSchedule, UserScheduleText};

impl Group {
    /// Lets calls name user schedules as their algorithm.
    ///
    /// `schedules` are the programs of all ranks, for one collective. They are verified for what
    /// the ranks of this group map of each other. Every rank adds the same: calls of different ones
    /// under one name are told as [`Error::Desync`]. What the group has under this name already may
    /// be added again.
    ///
    /// # Errors
    /// [`Error::Config`], with the verifier's message where the schedules are wrong; where they do
    /// not suit the group; and where the name is taken.
    pub fn add_schedule(&self, name: &str, schedules: Vec<Schedule>) -> Result<(), Error> {
        self.check_usable()?;
        let schedule = UserSchedule::of(name, schedules, &self.meeting)?;
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.selector.catalog.add_user_schedule(schedule)
        })
    }

    /// The user schedules that the group knows.
    pub fn schedules(&self) -> Result<Vec<UserScheduleText>, Error> {
        self.check_usable()?;
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id).ok_or_else(closed)?;
            let user_schedules = group.selector.catalog.user_schedules().iter();
            Ok(user_schedules.map(|one| one.told()).collect())
        })
    }
}
