//! User schedules of a group.

use weft_schedule::Schedule;

use super::{Group, closed};
use crate::Error;
use crate::selection::{UserSchedule, UserScheduleText};

impl Group {
    /// Adds user schedules, which calls can then name as their algorithm.
    ///
    /// `schedules` are the programs of all ranks, for one collective. They are verified for the
    /// memory that this group's ranks map. Every rank must add the same schedules: calls with
    /// different ones under one name fail with [`Error::Desync`]. The same schedules may be added
    /// again.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the schedules are incorrect (with the verifier's message), if they do
    /// not fit the group, or if the name is taken.
    pub fn add_schedule(&self, name: &str, schedules: Vec<Schedule>) -> Result<(), Error> {
        self.check_usable()?;
        let schedule = UserSchedule::of(name, schedules, &self.meeting)?;
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.selector.catalog.add_user_schedule(schedule)
        })
    }

    /// The group's user schedules.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if the group is closed.
    pub fn schedules(&self) -> Result<Vec<UserScheduleText>, Error> {
        self.check_usable()?;
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id).ok_or_else(closed)?;
            let user_schedules = group.selector.catalog.user_schedules().iter();
            Ok(user_schedules.map(|one| one.text()).collect())
        })
    }
}
