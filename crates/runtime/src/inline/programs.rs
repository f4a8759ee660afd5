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

/// The collectives that have lowered schedules.
pub(crate) const COLLECTIVES: [Collective; 5] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::Barrier,
];

/// A program, and which calls it is for.
#[derive(Debug)]
pub(super) struct Lowered {
    /// None where the schedule cannot be lowered.
    program: Option<Program>,
    /// What users call it.
    name: String,
    /// The plan that it stands for, as fingerprints carry it.
    plan: u16,
    /// Up to how many bytes of the message it is chosen.
    up_to: u64,
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
}

/// The program among these that a call runs by, with its plan, if the latency path can take it.
pub(super) fn find<'a>(
    among: &'a [Lowered],
    call: &Call,
    elements: u64,
) -> Option<(u16, &'a Program)> {
    let size = call.dtype.size() as u64;
    let lowered = among.iter().find(|lowered| match &call.algorithm {
        Some(name) => lowered.name == *name,
        None => elements * size <= lowered.up_to,
    })?;
    let fits = |program: &&Program| program.fits(elements, size);
    Some((lowered.plan, lowered.program.as_ref().filter(fits)?))
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
        let program = Program::lower(&schedule);
        program.filter(|program| !symmetric || program.begins_with_entry())
    };
    // One rank's schedule can be of the kind where others' are not: a root may talk to everybody.
    let everybody: Option<Vec<Program>> = (0..chooser.site.ranks).map(of_rank).collect();
    let own = chooser.site.rank as usize;
    Some(Lowered {
        program: everybody.map(|mut programs| programs.swap_remove(own)),
        name: way.name.clone(),
        plan: way.short(symmetric),
        up_to: line.up_to,
    })
}
