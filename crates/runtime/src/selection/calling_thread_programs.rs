//! Compilation of the programs for the calling thread.

use std::sync::OnceLock;

use weft_algorithms::MemoryClass;
use weft_call::{Call, Tiling};
use weft_program::Program;
use weft_schedule::{Collective, Rank, WireFormat};

use super::calling_thread::{CompiledCandidate, INLINE_BYTES, MappedProgram, Programs, SizeBound};
use super::candidates::{CallKind, Candidate};
use super::defaults::small_symmetric_bytes;
use super::selector::Selector;
use super::traits::Site;

/// The most candidates that are compiled because calls name them, for one collective and root.
/// Further ones run in lanes. The order of the calls determines them, so they are the same on all
/// ranks.
pub(crate) const NAMED: usize = 64;

impl Selector {
    /// Compiles the programs of a call, unless that is done.
    pub(super) fn prepare_calling_thread(&mut self, call: &Call) {
        let Some(tables) = self.calling_thread.clone() else {
            return;
        };
        let collective = call.collective;
        let programs = tables
            .of(collective)
            .get_or_init(|| Programs::chosen(collective, self));
        if let (Some(name), Some(_)) = (&call.algorithm, tables.elements(call)) {
            programs.add(collective, name, self);
        }
    }
}

impl Programs {
    /// The default candidates for a collective's messages of up to [`INLINE_BYTES`].
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
            .map(|candidate| CompiledCandidate::of(*candidate, collective, selector).into());
        Programs {
            candidates: (compiled.chain((0..NAMED).map(|_| OnceLock::new()))).collect(),
            ordinary,
            symmetric,
        }
    }

    /// Compiles the candidate that a call names, unless that is done or the limit is reached.
    fn add(&self, collective: Collective, name: &str, selector: &mut Selector) {
        let known = (selector.catalog).candidate(collective.name(), name, Tiling::default());
        let free = |place: &&OnceLock<Box<CompiledCandidate>>| {
            let taken = place.get();
            taken.is_none_or(|both| both.is_named(name))
        };
        // An unknown name is rejected when it is called.
        if let (Some(place), Ok(candidate)) = (self.candidates.iter().find(free), known) {
            place.get_or_init(|| CompiledCandidate::of(candidate, collective, selector));
        }
    }
}

/// The default choices for one class of memory. Adds their candidates to those to compile.
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
    // A collective that the group cannot execute is rejected when it is called.
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

impl CompiledCandidate {
    fn of(candidate: u32, collective: Collective, selector: &Selector) -> Box<CompiledCandidate> {
        let candidate = selector.catalog.at(candidate);
        let on = |memory| {
            let refused = candidate.refusal(selector.traits, kind(memory)).is_some();
            (!refused)
                .then(|| MappedProgram::of(candidate, &selector.site, collective, memory).into())
        };
        Box::new(CompiledCandidate {
            ordinary: on(MemoryClass::Ordinary),
            symmetric: match candidate.takes_symmetric(INLINE_BYTES) {
                true => on(MemoryClass::Symmetric),
                false => None,
            },
            candidate: candidate.clone(),
        })
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
        // All ranks must decide the same, although their schedules may be of different kinds.
        let all_ranks: Option<Vec<Program>> = (0..site.ranks).map(of_rank).collect();
        let (mut program, mut in_step, mut widest) = (None, false, 0);
        if let Some(mut programs) = all_ranks {
            in_step = programs.iter().all(Program::is_in_step);
            widest = programs
                .iter()
                .map(Program::widest_encoding)
                .max()
                .unwrap_or(0);
            let entries: Vec<Vec<Rank>> = programs.iter().map(Program::entries).collect();
            let mine = programs.swap_remove(site.rank as usize);
            // Here, since calls of all types run by it without looking at the catalog again.
            if collective.reduces() {
                let found = mine.find_sums(|| candidate.schedules(site, collective, kind(memory)));
                found.expect("made above");
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
}
