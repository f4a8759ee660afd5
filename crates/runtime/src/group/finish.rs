//! Completion of all operations before a group is left in order.

use std::sync::Arc;

use weft_bootstrap::Endpoint;

use super::Group;
use super::group::running_engine;
use crate::Error;
use crate::progress::{Engine, GroupState, Waited};

impl Group {
    /// Waits until all operations of this group have ended, with or without an error, except for
    /// receives that match no message yet. Each operation has its own deadline.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if the group is closed.
    pub fn finish(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<Waited, Error> {
        self.check_usable()?;
        Ok(finish(
            &self.engine,
            &|group| group.id == self.id,
            interrupted,
        ))
    }
}

/// As [`Group::finish`], for all groups of an endpoint.
///
/// # Errors
///
/// As [`Group::finish`].
pub fn finish_all(
    endpoint: &Arc<Endpoint>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Waited, Error> {
    let Some(engine) = running_engine(endpoint.id()) else {
        return Ok(Waited::Done);
    };
    engine.check_generation()?;
    Ok(finish(&engine, &|_| true, interrupted))
}

/// Closes every connection of an endpoint. Programs that watch its job get no more answers.
pub fn close_endpoint(endpoint: &Endpoint) {
    if let Some(engine) = running_engine(endpoint.id()) {
        engine.end_status();
    }
    endpoint.close();
}

fn finish(
    engine: &Engine,
    such: &dyn Fn(&GroupState) -> bool,
    interrupted: &mut dyn FnMut() -> bool,
) -> Waited {
    loop {
        let next = engine.with(|state, _| {
            let mut groups = state.groups.values().filter(|group| such(group));
            groups.find_map(GroupState::unfinished)
        });
        let Some(completion) = next else {
            return Waited::Done;
        };
        if engine.wait(&completion, None, interrupted) == Waited::Interrupted {
            return Waited::Interrupted;
        }
    }
}
