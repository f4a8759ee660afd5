//! Programs for the calling thread, by collective and size or by name, compiled for both memory
//! classes.

use std::sync::{Arc, OnceLock};

use weft_algorithms::MemoryClass;
use weft_schedule::{Collective, Rank, WireFormat};

use super::candidates::{CallKind, Candidate};
use super::defaults::small_symmetric_bytes;
use super::selector::Selector;
use super::traits::Site;
use crate::call::{Call, Counts, Op, Tiling};
use crate::channel::Room;
use crate::program::Program;

/// The longest message of an inline operation, in bytes: longer ones shall let urgent operations go
/// first.
const INLINE_BYTES: u64 = 1 << 20;

/// So many candidates are compiled because calls name them, for one collective and root; further
/// ones run in lanes. Which those are depends on the order of the calls, and so is the same on all
/// ranks.
pub(crate) const NAMED: usize = 64;

/// A candidate's schedule for one class of memory, compiled for this rank where all are mapped.
#[derive(Debug)]
pub(crate) struct MappedProgram {
    /// None where it cannot run on the calling thread.
    program: Option<Program>,
    /// The plan that it stands for, as fingerprints carry it.
    plan: u64,
    /// Whether it keeps the ranks in step. See [Note: Ranks in step] in `execution/inline.rs`.
    in_step: bool,
    /// Bytes of an element of the widest encoding in any rank's program.
    widest: u64,
}

/// A candidate, compiled for both classes of memory; none where it is refused there, or runs as on
/// the other.
#[derive(Debug)]
struct Both {
    candidate: Candidate,
    ordinary: Option<Arc<MappedProgram>>,
    symmetric: Option<Arc<MappedProgram>>,
}

/// Messages of up to so many bytes run by a candidate, by its place among those compiled.
type SizeBound = (u64, usize);

/// The programs of one collective and root.
#[derive(Debug)]
struct Programs {
    /// Those that are chosen unasked, and behind them those that calls have named, in the order in
    /// which they did.
    candidates: Vec<OnceLock<Box<Both>>>,
    /// What is chosen unasked, in ascending order of size.
    ordinary: Vec<SizeBound>,
    symmetric: Vec<SizeBound>,
}

/// The programs of a group's calling-thread path, by collective and root; there once one was
/// called.
#[derive(Debug)]
pub(crate) struct ProgramTables {
    ranks: u32,
    tables: Vec<OnceLock<Programs>>,
}

/// What a call runs by on the calling thread.
#[derive(Clone, Copy)]
pub(crate) struct InlineChoice<'a> {
    /// On ordinary memory; nothing if it takes a lane.
    pub(crate) ordinary: Option<&'a Arc<MappedProgram>>,
    /// On symmetric memory, where the ranks ask for it.
    pub(crate) symmetric: Option<&'a Arc<MappedProgram>>,
    /// Enough for both.
    pub(crate) room: Room,
}

/// A [`InlineChoice`] that is kept.
#[derive(Clone, Debug)]
pub(crate) struct InlineProgram {
    ordinary: Option<Arc<MappedProgram>>,
    symmetric: Option<Arc<MappedProgram>>,
    room: Room,
}

impl InlineProgram {
    pub(crate) fn choice(&self) -> InlineChoice<'_> {
        InlineChoice {
            ordinary: self.ordinary.as_ref(),
            symmetric: self.symmetric.as_ref(),
            room: self.room,
        }
    }
}

impl InlineChoice<'_> {
    pub(crate) fn kept(self) -> InlineProgram {
        InlineProgram {
            ordinary: self.ordinary.cloned(),
            symmetric: self.symmetric.cloned(),
            room: self.room,
        }
    }

    /// The plan, as fingerprints carry it.
    pub(crate) fn plan(self) -> u64 {
        let first = self.symmetric.or(self.ordinary);
        first.map_or(0, |mapped| mapped.plan)
    }

    /// Whether it keeps the ranks in step. Those that ask for symmetric memory all do.
    pub(crate) fn in_step(self) -> bool {
        self.symmetric.is_some() || self.ordinary.is_some_and(|mapped| mapped.in_step)
    }
}

impl ProgramTables {
    pub(crate) fn new(ranks: u32) -> Self {
        let tables = 0..Collective::NAMES.len() as u32 * ranks;
        ProgramTables {
            ranks,
            tables: tables.map(|_| OnceLock::new()).collect(),
        }
    }

    fn of(&self, collective: Collective) -> &OnceLock<Programs> {
        let index = u32::from(collective.index()) * self.ranks;
        &self.tables[(index + collective.root().unwrap_or(0)) as usize]
    }

    /// Compiles what a call may run by, unless that is done.
    pub(super) fn prepare(&self, call: &Call, selector: &mut Selector) {
        let collective = call.collective;
        let programs = self
            .of(collective)
            .get_or_init(|| Programs::chosen(collective, selector));
        if let (Some(name), Some(_)) = (&call.algorithm, self.elements(call)) {
            programs.add(collective, name, selector);
        }
    }

    /// What a call runs by that all ranks run on the calling thread; none for others, and before
    /// [`ProgramTables::prepare`]. The algorithm must be named as the catalog names it.
    #[inline]
    pub(crate) fn choose(&self, call: &Call, may_be_symmetric: bool) -> Option<InlineChoice<'_>> {
        let elements = self.elements(call)?;
        let programs = self.of(call.collective).get()?;
        programs.choose(call, elements, may_be_symmetric)
    }

    /// The elements of a call's message, if it is of the size and kind that may run there.
    #[inline]
    fn elements(&self, call: &Call) -> Option<u64> {
        let Counts::Equal(_) = call.counts else {
            return None;
        };
        let elements = call.message_elements(self.ranks);
        let bytes = elements.checked_mul(call.dtype.size() as u64)?;
        let odd = call.tiling != Tiling::default() || matches!(call.op, Op::PremulSum(_));
        (!odd && bytes <= INLINE_BYTES).then_some(elements)
    }
}

impl Programs {
    /// Of what is chosen for a collective's messages of up to [`INLINE_BYTES`].
    fn chosen(collective: Collective, selector: &mut Selector) -> Programs {
        let mut candidates = Vec::new();
        let ordinary = lines(collective, selector, MemoryClass::Ordinary, &mut candidates);
        let symmetric = lines(
            collective,
            selector,
            MemoryClass::Symmetric,
            &mut candidates,
        );
        let compiled = candidates
            .iter()
            .map(|candidate| Both::of(*candidate, collective, selector).into());
        Programs {
            candidates: (compiled.chain((0..NAMED).map(|_| OnceLock::new()))).collect(),
            ordinary,
            symmetric,
        }
    }

    /// Compiles what a call names, unless that is done or there is no room for it.
    fn add(&self, collective: Collective, name: &str, selector: &mut Selector) {
        let known = (selector.catalog).candidate(collective.name(), name, Tiling::default());
        let free = |place: &&OnceLock<Box<Both>>| {
            let taken = place.get();
            taken.is_none_or(|both| both.is_named(name))
        };
        // What there is not is refused when it is called.
        if let (Some(place), Ok(candidate)) = (self.candidates.iter().find(free), known) {
            place.get_or_init(|| Both::of(candidate, collective, selector));
        }
    }

    /// What a call runs by, if the calling thread can take it.
    fn choose(
        &self,
        call: &Call,
        elements: u64,
        may_be_symmetric: bool,
    ) -> Option<InlineChoice<'_>> {
        let size = call.dtype.size() as u64;
        let ordinary = self.find(call, &self.ordinary, elements * size);
        let ordinary = ordinary.and_then(|both| both.ordinary.as_ref());
        let ordinary = ordinary.and_then(|mapped| Some((mapped, mapped.room(elements, size)?)));
        let symmetric = match may_be_symmetric {
            true => self.find(call, &self.symmetric, elements * size),
            false => None,
        };
        let asks = |both: &&Both| both.candidate.takes_symmetric(elements * size);
        let symmetric = match symmetric.filter(asks) {
            Some(both) => {
                let mapped = both.symmetric.as_ref()?;
                Some((mapped, mapped.room(elements, size)?))
            }
            None => {
                ordinary?;
                None
            }
        };
        let rooms = ordinary.iter().chain(&symmetric).map(|(_, room)| *room);
        Some(InlineChoice {
            ordinary: ordinary.map(|(mapped, _)| mapped),
            symmetric: symmetric.map(|(mapped, _)| mapped),
            room: rooms.max().unwrap_or(Room::Small),
        })
    }

    /// What a call of so many bytes has named, or what these lines choose for it.
    fn find(&self, call: &Call, lines: &[SizeBound], bytes: u64) -> Option<&Both> {
        let found = match &call.algorithm {
            Some(name) => {
                let mut compiled = self.candidates.iter().map_while(OnceLock::get);
                compiled.find(|both| both.is_named(name))
            }
            None => {
                let (_, candidate) = lines.iter().find(|(up_to, _)| bytes <= *up_to)?;
                self.candidates[*candidate].get()
            }
        };
        let found = found.filter(|both| both.candidate.takes(call.dtype));
        found.map(Box::as_ref)
    }
}

/// What is chosen unasked on one class of memory. Adds its candidates to those that are to be
/// compiled.
fn lines(
    collective: Collective,
    selector: &mut Selector,
    memory: MemoryClass,
    candidates: &mut Vec<u32>,
) -> Vec<SizeBound> {
    let mut lines = Vec::new();
    let mut bytes = match memory {
        MemoryClass::Symmetric => small_symmetric_bytes(collective.name()) + 1,
        MemoryClass::Ordinary => 0,
    };
    // A collective that the group cannot carry out is refused when it is called.
    while bytes <= INLINE_BYTES
        && let Ok(line) = selector.line(collective, kind(memory), bytes)
    {
        let place = candidates
            .iter()
            .position(|candidate| *candidate == line.candidate);
        lines.push((line.up_to, place.unwrap_or(candidates.len())));
        if place.is_none() {
            candidates.push(line.candidate);
        }
        bytes = line.up_to.saturating_add(1);
    }
    lines
}

fn kind(memory: MemoryClass) -> CallKind {
    CallKind {
        memory,
        per_rank: false,
        wire: WireFormat::Full,
    }
}

impl Both {
    fn of(candidate: u32, collective: Collective, selector: &Selector) -> Box<Both> {
        let candidate = selector.catalog.at(candidate);
        let on = |memory| {
            let refused = candidate.refusal(selector.traits, kind(memory)).is_some();
            (!refused)
                .then(|| MappedProgram::of(candidate, &selector.site, collective, memory).into())
        };
        Box::new(Both {
            ordinary: on(MemoryClass::Ordinary),
            symmetric: match candidate.takes_symmetric(INLINE_BYTES) {
                true => on(MemoryClass::Symmetric),
                false => None,
            },
            candidate: candidate.clone(),
        })
    }

    /// Whether a call that names an algorithm, and nothing else, means this.
    fn is_named(&self, name: &str) -> bool {
        self.candidate.name == name && self.candidate.tiling == Tiling::default()
    }
}

impl MappedProgram {
    fn of(
        candidate: &Candidate,
        site: &Site,
        collective: Collective,
        memory: MemoryClass,
    ) -> MappedProgram {
        let of_rank = |rank: Rank| {
            let site = Site {
                rank,
                ..site.clone()
            };
            let schedule = candidate.schedule(&site, collective, kind(memory)).ok()?;
            let program = Program::compile(&schedule, &|_| true).ok()?;
            program.suits_calling_thread().then_some(program)
        };
        // All ranks must find alike, and one rank's schedule can be of a kind that others' are not.
        let everybody: Option<Vec<Program>> = (0..site.ranks).map(of_rank).collect();
        let (mut program, mut in_step, mut widest) = (None, false, 0);
        if let Some(mut programs) = everybody {
            in_step = programs.iter().all(Program::is_in_step);
            widest = programs
                .iter()
                .map(Program::widest_encoding)
                .max()
                .unwrap_or(0);
            let entries: Vec<Vec<Rank>> = programs.iter().map(Program::entries).collect();
            let mine = programs.swap_remove(site.rank as usize);
            // Here, as calls of all types run by it without a further look at the catalog.
            if collective.reduces() {
                let found = mine.find_sums(|| candidate.schedules(site, collective, kind(memory)));
                found.expect("they have been made above");
            }
            program = Some(match memory {
                MemoryClass::Symmetric => mine.after_entry(&entries),
                MemoryClass::Ordinary => mine,
            });
        }
        MappedProgram {
            program,
            plan: candidate.plan(memory, WireFormat::Full),
            in_step,
            widest,
        }
    }

    /// The bytes that temporary memory has for an element of a message.
    #[inline]
    pub(crate) fn widest(&self, element_bytes: u64) -> u64 {
        self.widest.max(element_bytes)
    }

    /// In which slots its temporary memory has room, if it can run.
    #[inline]
    fn room(&self, elements: u64, size: u64) -> Option<Room> {
        let program = self.program.as_ref()?;
        program.room_on_calling_thread(elements, self.widest(size))
    }

    /// What runs, where it fits.
    #[inline]
    pub(crate) fn program(&self) -> &Program {
        let program = self.program.as_ref();
        program.expect("what does not fit is not chosen")
    }
}
