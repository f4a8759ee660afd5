//! What inline operations run by: the schedules that calls of one collective and size would take, lowered.

use weft_schedule::{Collective, Rank};

use crate::Call;
use crate::choice::Chooser;
use crate::defaults::SMALL_SYMMETRIC_BYTES;
use crate::lowered::Program;
use crate::setting::Site;
use crate::ways::Kind;

/// The longest message of an inline operation, in bytes: longer ones shall let urgent operations go first.
pub(super) const INLINE_BYTES: u64 = 1 << 20;

/// A program, and which calls it is for.
#[derive(Debug)]
pub(super) struct Lowered {
    /// None where the schedule cannot be lowered.
    program: Option<Program>,
    /// What users call it.
    name: String,
    /// The plan that it stands for, as fingerprints carry it.
    pub(super) plan: u16,
    /// Up to how many bytes of the message it is chosen.
    up_to: u64,
    /// Whether it keeps the ranks in step. See [Note: Ranks in step] in `inline.rs`.
    pub(super) in_step: bool,
}

/// The programs of one collective, in ascending order of size.
#[derive(Default, Debug)]
pub(super) struct Programs {
    pub(super) ordinary: Vec<Lowered>,
    pub(super) symmetric: Vec<Lowered>,
}

/// What a call runs by.
#[derive(Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// On ordinary memory; nothing if it takes a lane.
    pub(super) ordinary: Option<&'a Program>,
    /// On symmetric memory, where the ranks ask for it.
    pub(super) symmetric: Option<&'a Program>,
    pub(super) plan: u16,
    /// Whether that keeps the ranks in step.
    pub(super) in_step: bool,
}

/// What a call runs by among these, if the latency path can take it.
pub(super) fn find<'a>(
    among: &'a [Lowered],
    call: &Call,
    elements: u64,
) -> Option<(&'a Lowered, &'a Program)> {
    let size = call.dtype.size() as u64;
    let lowered = among.iter().find(|lowered| match &call.algorithm {
        Some(name) => lowered.name == *name,
        None => elements * size <= lowered.up_to,
    })?;
    let fits = |program: &&Program| program.fits(elements, size);
    Some((lowered, lowered.program.as_ref().filter(fits)?))
}

/// The programs for a collective's messages of up to [`INLINE_BYTES`].
pub(super) fn programs(collective: Collective, chooser: &mut Chooser) -> Programs {
    let lines = |chooser: &mut Chooser, symmetric: bool| {
        let mut lowered: Vec<Lowered> = Vec::new();
        let mut bytes = if symmetric {
            SMALL_SYMMETRIC_BYTES + 1
        } else {
            0
        };
        // A collective that the group cannot carry out is refused when it is called.
        while let Some(line) = self::lowered(collective, chooser, symmetric, bytes) {
            bytes = line.up_to.saturating_add(1);
            lowered.push(line);
            if bytes > INLINE_BYTES {
                break;
            }
        }
        lowered
    };
    Programs {
        ordinary: lines(chooser, false),
        symmetric: lines(chooser, true),
    }
}

fn lowered(
    collective: Collective,
    chooser: &mut Chooser,
    symmetric: bool,
    bytes: u64,
) -> Option<Lowered> {
    let kind = Kind {
        symmetric,
        per_rank: false,
    };
    let line = chooser.line(collective, kind, bytes).ok()?;
    let way = chooser.catalog.at(line.way);
    let of_rank = |rank: Rank| {
        let site = Site {
            rank,
            ..chooser.site.clone()
        };
        let schedule = way.schedule(&site, collective, symmetric, false).ok()?;
        Program::lower(&schedule)
    };
    // All ranks must find alike, and one rank's schedule can be of a kind that others' are not.
    let (own, ranks) = (chooser.site.rank, chooser.site.ranks);
    let everybody: Option<Vec<Program>> = (0..ranks).map(of_rank).collect();
    let (mut program, mut in_step) = (None, false);
    if let Some(mut programs) = everybody {
        in_step = programs.iter().all(|program| program.is_in_step(ranks));
        let entries: Vec<Vec<Rank>> = programs.iter().map(Program::entries).collect();
        let lowered = programs.swap_remove(own as usize);
        program = Some(match symmetric {
            true => lowered.after_entry(own, &entries),
            false => lowered,
        });
    }
    Some(Lowered {
        program,
        name: way.name.clone(),
        plan: way.short(symmetric),
        up_to: line.up_to,
        in_step,
    })
}
