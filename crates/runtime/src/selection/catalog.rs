//! Catalog of a group's candidates by name: those of weft's family and user schedules, each parsed
//! once.

use std::sync::Arc;

use weft_algorithms::{Topology, select};
use weft_call::Tiling;
use weft_schedule::Collective;

use super::candidates::Candidate;
use super::user_schedules::UserSchedule;
use crate::Error;

/// A requested name, which is parsed only once.
struct Name {
    collective: &'static str,
    text: String,
    tiling: Tiling,
    candidate: u32,
}

/// All requested candidates, numbered in the order of their requests.
pub(crate) struct Catalog {
    topology: Topology,
    candidates: Vec<Candidate>,
    names: Vec<Name>,
    user_schedules: Vec<Arc<UserSchedule>>,
    /// The number of candidates that `new_candidates` has returned.
    returned: usize,
}

impl Catalog {
    pub(crate) fn new(topology: Topology) -> Self {
        Catalog {
            topology,
            candidates: Vec::new(),
            names: Vec::new(),
            user_schedules: Vec::new(),
            returned: 0,
        }
    }

    pub(crate) fn at(&self, candidate: u32) -> &Candidate {
        &self.candidates[candidate as usize]
    }

    pub(crate) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The candidates that were requested since the last call.
    pub(crate) fn new_candidates(&mut self) -> &[Candidate] {
        let first = std::mem::replace(&mut self.returned, self.candidates.len());
        &self.candidates[first..]
    }

    /// The candidate with this name and tiling.
    pub(crate) fn candidate(
        &mut self,
        collective: &'static str,
        text: &str,
        tiling: Tiling,
    ) -> Result<u32, Error> {
        let known = self.names.iter().find(|name| {
            name.collective == collective && name.tiling == tiling && name.text == text
        });
        if let Some(known) = known {
            return Ok(known.candidate);
        }
        let named = |schedule: &&Arc<UserSchedule>| {
            schedule.collective.name() == collective && schedule.name == text
        };
        let candidate = match self.user_schedules.iter().find(named) {
            Some(schedule) => Candidate::of_user(schedule.clone(), tiling),
            None => {
                let selection = select(collective, text);
                Candidate::family(
                    collective,
                    selection
                        .map_err(|why| Error::Config(self.with_user_schedules(collective, why)))?,
                    tiling,
                    &self.topology,
                )
            }
        };
        let same = |known: &Candidate| {
            known.collective == collective && known.name == candidate.name && known.tiling == tiling
        };
        let position = self.candidates.iter().position(same).unwrap_or_else(|| {
            self.candidates.push(candidate);
            self.candidates.len() - 1
        }) as u32;
        self.names.push(Name {
            collective,
            text: text.into(),
            tiling,
            candidate: position,
        });
        Ok(position)
    }

    /// The message for an unknown name, with the names of user schedules.
    fn with_user_schedules(&self, collective: &str, why: String) -> String {
        let user_schedules: Vec<&str> = (self.user_schedules.iter())
            .filter(|schedule| schedule.collective.name() == collective)
            .map(|schedule| schedule.name.as_str())
            .collect();
        match user_schedules.is_empty() {
            true => why,
            false => format!("{why}; and user schedules: {}", user_schedules.join(", ")),
        }
    }

    /// Adds a user's schedules. The same schedules may be added again under the same name.
    pub(crate) fn add_user_schedule(&mut self, schedule: UserSchedule) -> Result<(), Error> {
        let known = self
            .user_schedules
            .iter()
            .find(|known| known.name == schedule.name);
        let by = match known {
            Some(known) if known.hash == schedule.hash => return Ok(()),
            Some(_) => "another user schedule",
            None if Collective::NAMES
                .iter()
                .any(|c| select(c, &schedule.name).is_ok()) =>
            {
                "one of weft's algorithms"
            }
            None => {
                self.user_schedules.push(Arc::new(schedule));
                return Ok(());
            }
        };
        Err(Error::Config(format!(
            "the name {:?} is taken by {by}: choose another one",
            schedule.name
        )))
    }

    pub(crate) fn user_schedules(&self) -> &[Arc<UserSchedule>] {
        &self.user_schedules
    }
}
