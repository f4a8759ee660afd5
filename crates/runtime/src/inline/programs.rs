//! What inline operations run by: the schedules that calls of one collective and size would take, or name, lowered.

use std::sync::OnceLock;

use weft_schedule::{Collective, Rank};

use crate::Call;
use crate::choice::Chooser;
use crate::defaults::small_symmetric_bytes;
use crate::lowered::Program;
use crate::policy::Tiling;
use crate::setting::Site;
use crate::ways::{Kind, Way};

/// The longest message of an inline operation, in bytes: longer ones shall let urgent operations go first.
pub(super) const INLINE_BYTES: u64 = 1 << 20;

/// So many ways are lowered because calls name them, for one collective and root; further ones run in lanes. Which those are depends on
/// the order of the calls, and so is the same on all ranks.
pub(super) const NAMED: usize = 64;

/// A way's schedule for one kind of memory, lowered for this rank.
#[derive(Debug)]
struct Lowered {
    /// None where it cannot be lowered.
    program: Option<Program>,
    /// The plan that it stands for, as fingerprints carry it.
    plan: u16,
    /// Whether it keeps the ranks in step. See [Note: Ranks in step] in `inline.rs`.
    in_step: bool,
}

/// A way, lowered for both kinds of memory; none where it is refused there, or runs as on the other.
#[derive(Debug)]
struct Both {
    way: Way,
    ordinary: Option<Lowered>,
    symmetric: Option<Lowered>,
}

/// Messages of up to so many bytes run by a way, by its place among those lowered.
type Line = (u64, usize);

/// The programs of one collective and root.
#[derive(Debug)]
pub(super) struct Programs {
    /// Those that are chosen unasked, and behind them those that calls have named, in the order in which they did.
    ways: Vec<OnceLock<Box<Both>>>,
    /// What is chosen unasked, in ascending order of size.
    ordinary: Vec<Line>,
    symmetric: Vec<Line>,
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

impl Programs {
    /// Of what is chosen for a collective's messages of up to [`INLINE_BYTES`].
    pub(super) fn chosen(collective: Collective, chooser: &mut Chooser) -> Programs {
        let mut ways = Vec::new();
        let ordinary = lines(collective, chooser, false, &mut ways);
        let symmetric = lines(collective, chooser, true, &mut ways);
        let lowered = ways
            .iter()
            .map(|way| Both::of(*way, collective, chooser).into());
        Programs {
            ways: (lowered.chain((0..NAMED).map(|_| OnceLock::new()))).collect(),
            ordinary,
            symmetric,
        }
    }

    /// Lowers what a call names, unless that is done or there is no room for it.
    pub(super) fn add(&self, collective: Collective, name: &str, chooser: &mut Chooser) {
        let known = (chooser.catalog).way(collective.name(), name, Tiling::default());
        let free = |place: &&OnceLock<Box<Both>>| {
            let taken = place.get();
            taken.is_none_or(|both| both.is_named(name))
        };
        // What there is not is refused when it is called.
        if let (Some(place), Ok(way)) = (self.ways.iter().find(free), known) {
            place.get_or_init(|| Both::of(way, collective, chooser));
        }
    }

    /// What a call runs by, if the latency path can take it.
    pub(super) fn choose(
        &self,
        call: &Call,
        elements: u64,
        may_be_symmetric: bool,
    ) -> Option<Choice<'_>> {
        let size = call.dtype.size() as u64;
        let ordinary = self.find(call, &self.ordinary, elements * size);
        let ordinary = ordinary.and_then(|both| both.ordinary.as_ref());
        let symmetric = match may_be_symmetric {
            true => self.find(call, &self.symmetric, elements * size),
            false => None,
        };
        let asks = |both: &&Both| both.way.takes_symmetric(elements * size);
        match symmetric.filter(asks) {
            Some(both) => {
                let lowered = both.symmetric.as_ref()?;
                Some(Choice {
                    ordinary: ordinary.and_then(|ordinary| ordinary.fitting(elements, size)),
                    symmetric: Some(lowered.fitting(elements, size)?),
                    plan: lowered.plan,
                    in_step: true,
                })
            }
            None => {
                let lowered = ordinary?;
                Some(Choice {
                    ordinary: Some(lowered.fitting(elements, size)?),
                    symmetric: None,
                    plan: lowered.plan,
                    in_step: lowered.in_step,
                })
            }
        }
    }

    /// What a call of so many bytes has named, or what these lines choose for it.
    fn find(&self, call: &Call, lines: &[Line], bytes: u64) -> Option<&Both> {
        if let Some(name) = &call.algorithm {
            let mut lowered = self.ways.iter().map_while(OnceLock::get);
            return lowered.find(|both| both.is_named(name)).map(Box::as_ref);
        }
        let (_, way) = lines.iter().find(|(up_to, _)| bytes <= *up_to)?;
        self.ways[*way].get().map(Box::as_ref)
    }
}

/// What is chosen unasked on one kind of memory. Adds its ways to those that are to be lowered.
fn lines(
    collective: Collective,
    chooser: &mut Chooser,
    symmetric: bool,
    ways: &mut Vec<u32>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut bytes = match symmetric {
        true => small_symmetric_bytes(collective.name()) + 1,
        false => 0,
    };
    // A collective that the group cannot carry out is refused when it is called.
    while bytes <= INLINE_BYTES
        && let Ok(line) = chooser.line(collective, kind(symmetric), bytes)
    {
        let place = ways.iter().position(|way| *way == line.way);
        lines.push((line.up_to, place.unwrap_or(ways.len())));
        if place.is_none() {
            ways.push(line.way);
        }
        bytes = line.up_to.saturating_add(1);
    }
    lines
}

fn kind(symmetric: bool) -> Kind {
    Kind {
        symmetric,
        per_rank: false,
    }
}

impl Both {
    fn of(way: u32, collective: Collective, chooser: &Chooser) -> Box<Both> {
        let way = chooser.catalog.at(way);
        let on = |symmetric| {
            let refused = way.refusal(chooser.setting, kind(symmetric)).is_some();
            (!refused).then(|| Lowered::of(way, &chooser.site, collective, symmetric))
        };
        Box::new(Both {
            ordinary: on(false),
            symmetric: way
                .takes_symmetric(INLINE_BYTES)
                .then(|| on(true))
                .flatten(),
            way: way.clone(),
        })
    }

    /// Whether a call that names an algorithm, and nothing else, means this.
    fn is_named(&self, name: &str) -> bool {
        self.way.name == name && self.way.tiling == Tiling::default()
    }
}

impl Lowered {
    fn of(way: &Way, site: &Site, collective: Collective, symmetric: bool) -> Lowered {
        let of_rank = |rank: Rank| {
            let site = Site {
                rank,
                ..site.clone()
            };
            let schedule = way.schedule(&site, collective, symmetric, false).ok()?;
            Program::lower(&schedule)
        };
        // All ranks must find alike, and one rank's schedule can be of a kind that others' are not.
        let everybody: Option<Vec<Program>> = (0..site.ranks).map(of_rank).collect();
        let (mut program, mut in_step) = (None, false);
        if let Some(mut programs) = everybody {
            in_step = programs
                .iter()
                .all(|program| program.is_in_step(site.ranks));
            let entries: Vec<Vec<Rank>> = programs.iter().map(Program::entries).collect();
            let lowered = programs.swap_remove(site.rank as usize);
            program = Some(match symmetric {
                true => lowered.after_entry(site.rank, &entries),
                false => lowered,
            });
        }
        Lowered {
            program,
            plan: way.short(symmetric),
            in_step,
        }
    }

    /// The program, if its temporary memory has room in a slot.
    fn fitting(&self, elements: u64, size: u64) -> Option<&Program> {
        let fits = |program: &&Program| program.fits(elements, size);
        self.program.as_ref().filter(fits)
    }
}
