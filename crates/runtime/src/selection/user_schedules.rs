//! User schedules, verified for the group before execution.

use weft_algorithms::{Parts, Reach, Refusal, Requirements};
use weft_bootstrap::Meeting;
use weft_call::mix;
use weft_kernels::DType;
use weft_program::Program;
use weft_schedule::{
    Buffer, Collective, Encoding, Grid, Mapped, Schedule, Slice, Step, TileLimits, VerifyOptions,
    parse, print, verify,
};

use crate::Error;

/// Schedules of a user, verified for one group.
#[derive(Clone, Debug)]
pub(crate) struct UserSchedule {
    pub(crate) name: String,
    /// The collective, with its root.
    pub(crate) collective: Collective,
    /// The schedules, by rank.
    pub(crate) schedules: Vec<Schedule>,
    pub(crate) requires: Requirements,
    /// The encodings in any rank's program.
    encodings: Vec<Encoding>,
    /// All ranks' programs in text form.
    pub(crate) text: String,
    /// The hash of the text.
    pub(crate) hash: u64,
}

/// A user schedule of a group, in text form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserScheduleText {
    /// The name in calls.
    pub name: String,
    /// The collective, with its root.
    pub collective: Collective,
    /// Whether it needs symmetric memory.
    pub symmetric: bool,
    /// Whether it combines each element's contributions in one step, in the order of ranks.
    pub reproducible: bool,
    /// The programs of all ranks in text form.
    pub text: String,
}

impl UserSchedule {
    /// Reads schedules in text form, and verifies them for a group that has met. The result is the
    /// same on all of its ranks.
    pub(crate) fn read(name: &str, text: &str, meeting: &Meeting) -> Result<UserSchedule, Error> {
        let schedules = parse(text)
            .map_err(|error| Error::Config(format!("the schedule {name:?}: {error}")))?;
        UserSchedule::of(name, schedules, meeting)
    }

    /// Verifies the schedules of all ranks for a group that has met. The result is the same on all
    /// of its ranks.
    pub(crate) fn of(
        name: &str,
        schedules: Vec<Schedule>,
        meeting: &Meeting,
    ) -> Result<UserSchedule, Error> {
        check_name(name)?;
        let refuse = |why: String| Error::Config(format!("the schedule {name:?} {why}"));
        let (programs, ranks) = (schedules.len(), meeting.members.len());
        if programs != ranks {
            return Err(refuse(format!(
                "has {programs} programs, but the group has {ranks} ranks"
            )));
        }
        let requires = verified(&schedules, meeting).map_err(refuse)?;
        let text = print(&schedules);
        let schedule = UserSchedule {
            name: name.into(),
            collective: schedules[0].collective,
            requires,
            encodings: encodings(&schedules),
            hash: text.bytes().map(u64::from).fold(1, mix),
            text,
            schedules,
        };
        schedule.check_runs(meeting)?;
        Ok(schedule)
    }

    /// Whether elements of this type can be converted to and from all of its encodings, exactly
    /// from those of 16 bits: the verifier assumes that.
    pub(crate) fn takes(&self, dtype: DType) -> bool {
        let wide = matches!(dtype, DType::F32 | DType::F64);
        self.encodings.iter().all(|encoding| match encoding {
            Encoding::Native => true,
            Encoding::F32 => dtype.is_float(),
            Encoding::F16 => wide || dtype == DType::F16,
            Encoding::Bf16 => wide || dtype == DType::Bf16,
            Encoding::E4m3 | Encoding::E5m2 => false,
        })
    }

    pub(crate) fn text(&self) -> UserScheduleText {
        UserScheduleText {
            name: self.name.clone(),
            collective: self.collective,
            symmetric: self.requires.symmetric,
            reproducible: self.requires.reproducible,
            text: self.text.clone(),
        }
    }

    /// Rejects correct schedules that the executor does not support. All ranks check all programs,
    /// so that none waits for a rank that rejects its own.
    fn check_runs(&self, meeting: &Meeting) -> Result<(), Error> {
        let limits = TileLimits::of_group(meeting.members.len() as u32);
        if !limits.fits(&self.schedules[0]) {
            return Err(Error::Unsupported(format!(
                "the schedule {:?} {}",
                self.name,
                Refusal::TemporaryMemory
            )));
        }
        if self.encodings.iter().any(|encoding| encoding.is_scaled()) {
            return Err(Error::Unsupported(format!(
                "the schedule {:?} has slices of 8-bit floats: those are for wire formats of weft's own algorithms",
                self.name
            )));
        }
        for schedule in &self.schedules {
            Program::compile(schedule, &|peer| meeting.maps(schedule.rank, peer))?;
        }
        Ok(())
    }
}

/// The requirements of schedules that are correct if the ranks of a host map each other's temporary
/// memory and, if the schedules need it, all ranks the caller's. Schedules that are verified for a
/// group's hosts have no further requirement on them.
fn verified(schedules: &[Schedule], meeting: &Meeting) -> Result<Requirements, String> {
    let ranks = meeting.members.len() as u32;
    let symmetric = schedules.iter().any(reaches_arrays_of_others);
    if symmetric && !(1..ranks).all(|rank| meeting.maps(0, rank)) {
        let hosts = meeting.ranks_per_host();
        return Err(format!(
            "reaches other ranks' input or output, so it needs symmetric memory and all ranks on one host; \
             this group's hosts have {hosts:?} ranks"
        ));
    }
    let mapped = match symmetric {
        true => Mapped::All,
        false => Mapped::Scratch,
    };
    let options = VerifyOptions {
        hosts: Some(meeting.members.iter().map(|member| member.host).collect()),
        ..VerifyOptions::mapped(mapped)
    };
    let report = verify(schedules, &options.one_tile());
    let report = report.map_err(|error| format!("is refused: {error}"))?;
    Ok(Requirements {
        mapped: Reach::None,
        symmetric,
        per_rank_sizes: matches!(schedules[0].grid, Grid::Blocks(_)),
        reproducible: report.is_canonical(),
        parts: Parts::None,
    })
}

fn reaches_arrays_of_others(schedule: &Schedule) -> bool {
    let theirs = |slice: &Slice| {
        slice.rank != schedule.rank && matches!(slice.buffer, Buffer::Input | Buffer::Output)
    };
    schedule.steps.iter().flat_map(Step::slices).any(theirs)
}

/// The encodings of all slices, each once.
fn encodings(schedules: &[Schedule]) -> Vec<Encoding> {
    let steps = schedules.iter().flat_map(|schedule| &schedule.steps);
    let used: Vec<Encoding> = steps
        .flat_map(Step::slices)
        .map(|slice| slice.encoding)
        .collect();
    let mut all = Encoding::ALL.to_vec();
    all.retain(|encoding| used.contains(encoding));
    all
}

/// Checks that a name has the form of an algorithm's name.
fn check_name(name: &str) -> Result<(), Error> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.chars().all(good) {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the name {name:?} of a schedule must consist of letters, digits, and - _ ."
    )))
}
