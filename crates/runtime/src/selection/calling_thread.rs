//! Programs for the calling thread, by collective and size or by name, compiled for both memory
//! classes.

use std::sync::{Arc, OnceLock};

use weft_call::{Call, Counts, Op, Tiling};
use weft_channel::SlotSize;
use weft_program::Program;
use weft_schedule::Collective;

use super::candidates::Candidate;

/// The longest message of an inline operation, in bytes: longer ones must let urgent operations
/// run first.
pub(super) const INLINE_BYTES: u64 = 1 << 20;

/// A candidate's schedule for one class of memory, compiled for this rank where all are mapped.
#[derive(Debug)]
pub(crate) struct MappedProgram {
    /// `None` if it cannot run on the calling thread.
    pub(super) program: Option<Program>,
    /// The plan's hash in fingerprints.
    pub(super) plan: u64,
    /// Whether it keeps the ranks in step. See [Note: Ranks in step] in
    /// `execution/calling_thread/mod.rs`.
    pub(super) in_step: bool,
    /// Bytes of an element of the widest encoding in any rank's program.
    pub(super) widest: u64,
}

/// A candidate, compiled for both classes of memory; `None` where it is refused, or is the same as
/// for the other class.
#[derive(Debug)]
pub(super) struct CompiledCandidate {
    pub(super) candidate: Candidate,
    pub(super) ordinary: Option<Arc<MappedProgram>>,
    pub(super) symmetric: Option<Arc<MappedProgram>>,
}

/// The largest message in bytes for a candidate, and the candidate's index.
pub(super) type SizeBound = (u64, usize);

/// The programs of one collective and root.
#[derive(Debug)]
pub(super) struct Programs {
    /// The candidates that are chosen by default, followed by those that calls have named, in the
    /// order of the calls.
    pub(super) candidates: Vec<OnceLock<Box<CompiledCandidate>>>,
    /// The default choices, in ascending order of size.
    pub(super) ordinary: Vec<SizeBound>,
    pub(super) symmetric: Vec<SizeBound>,
}

/// The programs of a group's calling-thread path, by collective and root, set when it is first
/// called.
#[derive(Debug)]
pub(crate) struct ProgramTables {
    ranks: u32,
    tables: Vec<OnceLock<Programs>>,
}

/// The programs of a call on the calling thread.
#[derive(Clone, Copy)]
pub(crate) struct InlineChoice<'a> {
    /// The program for ordinary memory; `None` if it needs a lane.
    pub(crate) ordinary: Option<&'a Arc<MappedProgram>>,
    /// The program for symmetric memory, if the ranks exchange positions.
    pub(crate) symmetric: Option<&'a Arc<MappedProgram>>,
    /// The slots that suffice for both.
    pub(crate) room: SlotSize,
}

/// An [`InlineChoice`] with shared ownership.
#[derive(Clone, Debug)]
pub(crate) struct InlineProgram {
    ordinary: Option<Arc<MappedProgram>>,
    symmetric: Option<Arc<MappedProgram>>,
    room: SlotSize,
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

    /// The plan's hash in fingerprints.
    pub(crate) fn plan(self) -> u64 {
        let first = self.symmetric.or(self.ordinary);
        first.map_or(0, |mapped| mapped.plan)
    }

    /// Whether it keeps the ranks in step. All with an exchange of positions do.
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

    /// The programs of a call that all ranks run on the calling thread; `None` for other calls, and
    /// before `Selector::prepare_calling_thread`. An algorithm must have the catalog's spelling.
    #[inline]
    pub(crate) fn choose(&self, call: &Call, may_be_symmetric: bool) -> Option<InlineChoice<'_>> {
        let elements = self.elements(call)?;
        let programs = self.of(call.collective).get()?;
        programs.choose(call, elements, may_be_symmetric)
    }

    /// The elements of a call's message, if its size and kind allow the calling thread.
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
    /// The programs of a call, if the calling thread can run it.
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
        let asks = |both: &&CompiledCandidate| both.candidate.takes_symmetric(elements * size);
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
            room: rooms.max().unwrap_or(SlotSize::Small),
        })
    }

    /// The candidate that a call of `bytes` bytes names, or that these lines choose for it.
    fn find(&self, call: &Call, lines: &[SizeBound], bytes: u64) -> Option<&CompiledCandidate> {
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

impl CompiledCandidate {
    /// Whether a call that only names an algorithm means this candidate.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.candidate.name == name && self.candidate.tiling == Tiling::default()
    }
}

impl MappedProgram {
    /// The bytes per element in temporary memory.
    #[inline]
    pub(crate) fn widest(&self, element_bytes: u64) -> u64 {
        self.widest.max(element_bytes)
    }

    /// The smallest slots for its temporary memory, if it can run.
    #[inline]
    fn room(&self, elements: u64, size: u64) -> Option<SlotSize> {
        let program = self.program.as_ref()?;
        program.room_on_calling_thread(elements, self.widest(size))
    }

    /// The program of a candidate that fits.
    #[inline]
    pub(crate) fn program(&self) -> &Program {
        let program = self.program.as_ref();
        program.expect("only programs that fit are chosen")
    }
}
