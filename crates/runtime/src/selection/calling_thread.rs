//! Programs for the calling thread, by collective and size or by name, compiled for both memory
//! classes.

use std::sync::{Arc, OnceLock};

use weft_call::{Call, Counts, Op, Tiling};
use weft_channel::Room;
use weft_program::Program;
use weft_schedule::Collective;

use super::candidates::Candidate;

/// The longest message of an inline operation, in bytes: longer ones shall let urgent operations go
/// first.
pub(super) const INLINE_BYTES: u64 = 1 << 20;

/// A candidate's schedule for one class of memory, compiled for this rank where all are mapped.
#[derive(Debug)]
pub(crate) struct MappedProgram {
    /// None where it cannot run on the calling thread.
    pub(super) program: Option<Program>,
    /// The plan that it stands for, as fingerprints carry it.
    pub(super) plan: u64,
    /// Whether it keeps the ranks in step. See [Note: Ranks in step] in
    /// `execution/calling_thread/mod.rs`.
    pub(super) in_step: bool,
    /// Bytes of an element of the widest encoding in any rank's program.
    pub(super) widest: u64,
}

/// A candidate, compiled for both classes of memory; none where it is refused there, or runs as on
/// the other.
#[derive(Debug)]
pub(super) struct Both {
    pub(super) candidate: Candidate,
    pub(super) ordinary: Option<Arc<MappedProgram>>,
    pub(super) symmetric: Option<Arc<MappedProgram>>,
}

/// Messages of up to so many bytes run by a candidate, by its place among those compiled.
pub(super) type SizeBound = (u64, usize);

/// The programs of one collective and root.
#[derive(Debug)]
pub(super) struct Programs {
    /// Those that are chosen unasked, and behind them those that calls have named, in the order in
    /// which they did.
    pub(super) candidates: Vec<OnceLock<Box<Both>>>,
    /// What is chosen unasked, in ascending order of size.
    pub(super) ordinary: Vec<SizeBound>,
    pub(super) symmetric: Vec<SizeBound>,
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

    pub(super) fn of(&self, collective: Collective) -> &OnceLock<Programs> {
        let index = u32::from(collective.index()) * self.ranks;
        &self.tables[(index + collective.root().unwrap_or(0)) as usize]
    }

    /// What a call runs by that all ranks run on the calling thread; none for others, and before
    /// `Selector::prepare_calling_thread`. The algorithm must be named as the catalog names it.
    #[inline]
    pub(crate) fn choose(&self, call: &Call, may_be_symmetric: bool) -> Option<InlineChoice<'_>> {
        let elements = self.elements(call)?;
        let programs = self.of(call.collective).get()?;
        programs.choose(call, elements, may_be_symmetric)
    }

    /// The elements of a call's message, if it is of the size and kind that may run there.
    #[inline]
    pub(super) fn elements(&self, call: &Call) -> Option<u64> {
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

impl Both {
    /// Whether a call that names an algorithm, and nothing else, means this.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.candidate.name == name && self.candidate.tiling == Tiling::default()
    }
}

impl MappedProgram {
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
