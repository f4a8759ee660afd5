//! Options of groups from Python, for groups of all ranks and for split groups.

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_runtime::{
    Domain, GroupOptions, GroupTerms, JobIdentity, Policy, Schedules, SplitOptions,
};
use weft_schedule::WireFormat;

use crate::call::wire_format;
use crate::interrupt::optional_duration;
use crate::selection::{ProfileArgument, profiles};

/// The given options. Missing ones have their defaults, or the values of the parent group.
#[derive(Default)]
pub(crate) struct Options {
    timeout: Option<f64>,
    algorithm: Option<BTreeMap<String, String>>,
    reproducible: Option<bool>,
    topology: Option<Vec<Vec<u32>>>,
    schedules: Option<Schedules>,
    profiles: Option<Vec<ProfileArgument>>,
    domains: Option<Vec<Vec<u32>>>,
    wire: Option<WireFormat>,
    job: Option<Vec<(String, String)>>,
    settings: Option<BTreeMap<String, String>>,
}

impl Options {
    /// Reads the keywords of a call.
    pub(crate) fn of(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self::default();
        for (keyword, value) in keywords.into_iter().flatten() {
            match keyword.extract::<&str>()? {
                "timeout" => options.timeout = value.extract()?,
                "algorithm" => options.algorithm = value.extract()?,
                "reproducible" => options.reproducible = value.extract()?,
                "topology" => options.topology = value.extract()?,
                "schedules" => options.schedules = value.extract()?,
                "profiles" => options.profiles = value.extract()?,
                "domains" => options.domains = value.extract()?,
                "wire" => options.wire = wire_format(&value)?,
                "job" => options.job = value.extract()?,
                "settings" => options.settings = value.extract()?,
                other => {
                    let text = format!("{other:?} is not an option of a group");
                    return Err(PyTypeError::new_err(text));
                }
            }
        }
        Ok(options)
    }

    /// The options for a group of all ranks.
    pub(crate) fn of_group(
        self,
        py: Python<'_>,
        name: String,
        global_ranks: Option<Vec<u32>>,
    ) -> PyResult<GroupOptions> {
        let default = GroupOptions::default();
        Ok(GroupOptions {
            timeout: optional_duration(py, self.timeout)?.unwrap_or(default.timeout),
            name,
            global_ranks,
            terms: GroupTerms {
                job: JobIdentity(self.job.unwrap_or_default()),
                settings: self.settings.unwrap_or_default(),
                policy: Policy {
                    algorithms: self.algorithm.unwrap_or_default(),
                    reproducible: self.reproducible.unwrap_or_default(),
                    levels: self.topology.unwrap_or_default(),
                    schedules: self.schedules.unwrap_or_default(),
                    domains: self.domains,
                    wire: self.wire.unwrap_or_default(),
                },
                profiles: profiles(self.profiles.unwrap_or_default()),
                domain: Domain::of_this_process(),
                ..GroupTerms::default()
            },
        })
    }

    /// The options for a group of some ranks of another.
    pub(crate) fn of_split(self, py: Python<'_>) -> PyResult<SplitOptions> {
        Ok(SplitOptions {
            timeout: optional_duration(py, self.timeout)?,
            algorithms: self.algorithm,
            reproducible: self.reproducible,
            levels: self.topology,
            schedules: self.schedules,
            domains: self.domains,
            wire: self.wire,
            profiles: self.profiles.map(profiles),
            ..SplitOptions::default()
        })
    }
}
