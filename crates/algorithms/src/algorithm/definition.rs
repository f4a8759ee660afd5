//! The definition of an algorithm: what it needs, what it costs, and how it is built.

use weft_schedule::{Collective, Schedule};

use super::about::{About, FormulaText};
use crate::{Cost, Formula, Owners, ScheduleRequest, Sizes, Textbook, Topology};

/// Whose memory a rank must be able to read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reach {
    /// Only its own.
    None,
    /// The `Scratch` of the ranks in its innermost unit of the topology.
    Unit,
    /// The `Scratch` of every rank.
    All,
}

/// What is to be chosen about an algorithm: what may follow its name in parentheses.
#[derive(Clone, Copy, Debug)]
pub enum Parts {
    /// Nothing.
    None,
    /// A number of something, if at all.
    Count {
        /// Of what.
        of: &'static str,
        /// By multiples of how many ranks programs are alike, in the sense of
        /// [`Symmetry::Rotation`], if they are.
        alike: fn(&ScheduleRequest) -> Option<u32>,
    },
    /// Nothing: its programs follow the innermost units. Where none of them has several ranks, or
    /// all ranks are in one, there is another algorithm that does the same.
    Units,
    /// A component for each level of units, innermost first, then an algorithm of the same
    /// collective for the outermost owners.
    Levels {
        /// The components for the inside of units; the first is the default.
        inner: &'static [InsideComponent],
        /// The default for the outermost owners.
        top: &'static str,
        /// Which ranks of a unit take part in what is between units.
        owners: Owners,
    },
}

/// Which ranks' programs are the same but for names: another rank for each rank, other chunks, of
/// the same share of the message, for the chunks of a slice.
///
/// The order of a reduction's sources does not count, nor whether a range is split where chunk
/// numbers wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Symmetry {
    /// None in particular.
    None,
    /// Rank r's program is that of rank 0 with r added to every rank, modulo their number.
    Rotation,
    /// Where the number of ranks is a power of two: rank r's program is that of rank 0 with r
    /// xor-ed to every rank.
    Exclusive,
}

/// What an algorithm needs and can do.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// Whose `Scratch` a rank reads. Symmetric memory comes with [`Reach::All`].
    pub mapped: Reach,
    /// The caller's memory must be symmetric.
    pub symmetric: bool,
    /// Blocks may have a size per rank: [`Sizes::PerRank`](crate::Sizes::PerRank).
    pub per_rank_sizes: bool,
    /// Every element's contributions are combined by one reduction in the order of ranks, whatever
    /// the topology: the canonical tree.
    pub reproducible: bool,
    /// What is to be chosen about it.
    pub parts: Parts,
}

impl Requirements {
    /// Runs over every transport, on any memory, with blocks of equal size.
    pub(crate) const NONE: Requirements = Requirements {
        mapped: Reach::None,
        symmetric: false,
        per_rank_sizes: false,
        reproducible: false,
        parts: Parts::None,
    };
    /// As [`Requirements::NONE`], for groups with units.
    pub(crate) const UNITS: Requirements = Requirements {
        parts: Parts::Units,
        ..Requirements::NONE
    };
    /// As [`Requirements::UNITS`], and blocks may have a size per rank.
    pub(crate) const UNITS_ANY_SIZES: Requirements = Requirements {
        per_rank_sizes: true,
        ..Requirements::UNITS
    };
    /// As [`Requirements::NONE`], and blocks may have a size per rank.
    pub(crate) const NONE_ANY_SIZES: Requirements = Requirements {
        per_rank_sizes: true,
        ..Requirements::NONE
    };
    /// Reads the peers' scratch memory.
    pub(crate) const MAPPED: Requirements = Requirements {
        mapped: Reach::All,
        ..Requirements::NONE
    };
    /// As [`Requirements::NONE`], and combines in the canonical tree.
    pub(crate) const REPRODUCIBLE: Requirements = Requirements {
        reproducible: true,
        ..Requirements::NONE
    };
    /// As [`Requirements::REPRODUCIBLE`], and blocks may have a size per rank.
    pub(crate) const REPRODUCIBLE_ANY_SIZES: Requirements = Requirements {
        per_rank_sizes: true,
        ..Requirements::REPRODUCIBLE
    };
    /// Reads the peers' scratch memory and combines in the canonical tree.
    pub(crate) const MAPPED_REPRODUCIBLE: Requirements = Requirements {
        reproducible: true,
        ..Requirements::MAPPED
    };
}

/// What an algorithm costs, whichever rank the request names.
#[derive(Clone, Copy, Debug)]
pub enum Costs {
    /// What its formula says, phase by phase.
    Phases(fn(&ScheduleRequest) -> Formula),
    /// Who is the busiest depends on the number of ranks: the phases are counted, and the formula
    /// tells their sums.
    Counted(
        fn(&ScheduleRequest) -> Cost,
        fn(&ScheduleRequest) -> Formula,
    ),
    /// What units make of it: its phases, and what people are told of the steps, of what is sent,
    /// and of what is read.
    OfUnits(fn(&ScheduleRequest) -> Cost, [&'static str; 3]),
    /// What its components cost, of which people are told the steps, what is sent, and what is
    /// read.
    Parts(fn(&ScheduleRequest) -> Cost, [&'static str; 3]),
}

/// One way to carry out one collective.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Its name, unique within the collective.
    pub name: &'static str,
    /// The collective's name, as [`weft_schedule::Collective::name`] gives it.
    pub collective: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// What else people are told.
    pub about: About,
    /// What it needs and can do.
    pub requires: Requirements,
    /// Which ranks' programs are alike.
    pub symmetry: Symmetry,
    /// What it costs.
    pub costs: Costs,
    /// Makes one rank's program. The request must keep the invariants of [`ScheduleRequest`].
    pub build: fn(&ScheduleRequest) -> Schedule,
}

impl Algorithm {
    /// What it costs, to be priced. Which rank the request names does not matter.
    pub fn cost(&self, request: &ScheduleRequest) -> Cost {
        match self.costs {
            Costs::Phases(formula) => formula(request).cost(request),
            Costs::Counted(cost, _) | Costs::OfUnits(cost, _) | Costs::Parts(cost, _) => {
                cost(request)
            }
        }
    }

    /// What it costs according to its source. `None` if that depends on units; for levels see
    /// [`Selection::textbook`](crate::Selection::textbook).
    pub fn textbook(&self, request: &ScheduleRequest) -> Option<Textbook> {
        match self.costs {
            Costs::Parts(..) | Costs::OfUnits(..) => None,
            _ if request.ranks == 1 => Some(Textbook::NOTHING),
            Costs::Phases(formula) | Costs::Counted(_, formula) => {
                Some(formula(request).textbook(request.ranks))
            }
        }
    }

    /// What people are told that it costs: once for any memory, or for each kind.
    pub fn formulas(&self) -> Vec<FormulaText> {
        self.formulas_of(2)
    }

    /// As [`Algorithm::formulas`], of a formula for so many ranks, which says the same whatever
    /// their number.
    pub(crate) fn formulas_of(&self, ranks: u32) -> Vec<FormulaText> {
        let topology = Topology::flat(ranks);
        let collective = Collective::named(self.collective, 0);
        let in_memory = |formula: fn(&ScheduleRequest) -> Formula, memory| {
            formula(&ScheduleRequest {
                collective: collective.expect("collectives are registered by their names"),
                ranks,
                rank: 0,
                memory,
                sizes: Sizes::Equal,
                topology: &topology,
                parts: &[],
            })
        };
        match self.costs {
            Costs::Parts(_, told) | Costs::OfUnits(_, told) => {
                vec![FormulaText::new(None, told.map(str::to_owned))]
            }
            Costs::Phases(formula) | Costs::Counted(_, formula) => {
                FormulaText::in_any_memory(|memory| in_memory(formula, memory))
            }
        }
    }
}

/// A component for the inside of units: its phases before and after the owners' exchange.
#[derive(Debug)]
pub struct InsideComponent {
    /// Its name among an algorithm's components.
    pub name: &'static str,
    /// The algorithm by which contributions come together at the owners, if the collective
    /// combines.
    pub(crate) inward: Option<&'static Algorithm>,
    /// The algorithm by which results spread from the owners, if all ranks get them.
    pub(crate) outward: Option<&'static Algorithm>,
}

impl InsideComponent {
    /// For collectives that combine and spread.
    pub(crate) const fn both(
        name: &'static str,
        inward: &'static Algorithm,
        outward: &'static Algorithm,
    ) -> Self {
        InsideComponent {
            name,
            inward: Some(inward),
            outward: Some(outward),
        }
    }

    /// Whether a rank reads memory of others in its unit.
    pub(crate) fn reads_peers(&self) -> bool {
        let mut phases = self.inward.iter().chain(&self.outward);
        phases.any(|algorithm| algorithm.requires.mapped > Reach::None)
    }

    /// Which of a unit's ranks do the same, if each of them owns a slice.
    pub(crate) fn symmetry(&self) -> Symmetry {
        let mut phases = self.inward.iter().chain(&self.outward);
        let first = phases.next().map_or(Symmetry::None, |of| of.symmetry);
        match phases.all(|algorithm| algorithm.symmetry == first) {
            true => first,
            false => Symmetry::None,
        }
    }

    /// For collectives whose result stays at the root.
    pub(crate) const fn inward(name: &'static str, inward: &'static Algorithm) -> Self {
        InsideComponent {
            name,
            inward: Some(inward),
            outward: None,
        }
    }

    /// For collectives that combine nothing.
    pub(crate) const fn outward(name: &'static str, outward: &'static Algorithm) -> Self {
        InsideComponent {
            name,
            inward: None,
            outward: Some(outward),
        }
    }
}
