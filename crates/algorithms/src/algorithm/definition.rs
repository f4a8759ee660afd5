//! The definition of an algorithm: requirements, costs and construction.

use weft_schedule::{Collective, Schedule};

use super::about::{About, FormulaText};
use crate::{Cost, Formula, Owners, ScheduleRequest, Sizes, Textbook, Topology};

/// The ranks whose memory a rank must be able to read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reach {
    /// Only its own.
    None,
    /// The `Scratch` of the ranks in its innermost unit of the topology.
    Unit,
    /// The `Scratch` of every rank.
    All,
}

/// The choices that an algorithm leaves: its parts, in parentheses after its name.
#[derive(Clone, Copy, Debug)]
pub enum Parts {
    /// Nothing.
    None,
    /// A number of something, if at all.
    Count {
        /// The counted thing, such as servers.
        of: &'static str,
        /// The number of ranks by whose multiples a rotation maps programs onto each other, as in
        /// [`Symmetry::Rotation`], if there is one.
        period: fn(&ScheduleRequest) -> Option<u32>,
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
        /// The ranks of a unit that take part in the exchange between units.
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

/// Requirements and abilities of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// The ranks whose `Scratch` a rank reads. Symmetric memory implies [`Reach::All`].
    pub mapped: Reach,
    /// The caller's memory must be symmetric.
    pub symmetric: bool,
    /// Blocks may have a size per rank: [`Sizes::PerRank`](crate::Sizes::PerRank).
    pub per_rank_sizes: bool,
    /// Every element's contributions are combined by one reduction in the order of ranks,
    /// regardless of the topology: the canonical tree.
    pub reproducible: bool,
    /// The choices that it leaves.
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
    /// As [`Requirements::MAPPED`], and blocks may have a size per rank.
    pub(crate) const MAPPED_ANY_SIZES: Requirements = Requirements {
        per_rank_sizes: true,
        ..Requirements::MAPPED
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

/// The cost of an algorithm; the same for all ranks of a request.
#[derive(Clone, Copy, Debug)]
pub enum Costs {
    /// The phases of its formula.
    Phases(fn(&ScheduleRequest) -> Formula),
    /// The busiest rank depends on the number of ranks: the phases are counted, and the formula
    /// gives their sums.
    Counted(
        fn(&ScheduleRequest) -> Cost,
        fn(&ScheduleRequest) -> Formula,
    ),
    /// The phases, which depend on units, and the texts about steps, bytes sent and bytes read.
    OfUnits(fn(&ScheduleRequest) -> Cost, [&'static str; 3]),
    /// The sum of the components' costs, and the texts about steps, bytes sent and bytes read.
    Parts(fn(&ScheduleRequest) -> Cost, [&'static str; 3]),
}

/// One way to carry out one collective.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Its name, unique within the collective.
    pub name: &'static str,
    /// The collective's name, as [`weft_schedule::Collective::name`] gives it.
    pub collective: &'static str,
    /// One line of description.
    pub summary: &'static str,
    /// The texts of its documentation.
    pub about: About,
    /// Its requirements and abilities.
    pub requires: Requirements,
    /// The ranks whose programs are the same but for their numbers.
    pub symmetry: Symmetry,
    /// Its cost.
    pub costs: Costs,
    /// Makes one rank's program. The request must keep the invariants of [`ScheduleRequest`].
    pub build: fn(&ScheduleRequest) -> Schedule,
}

impl Algorithm {
    /// Returns its cost, to be priced. The request's rank does not matter.
    pub fn cost(&self, request: &ScheduleRequest) -> Cost {
        match self.costs {
            Costs::Phases(formula) => formula(request).cost(request),
            Costs::Counted(cost, _) | Costs::OfUnits(cost, _) | Costs::Parts(cost, _) => {
                cost(request)
            }
        }
    }

    /// Returns its cost according to its source. `None` if that depends on units; for levels see
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

    /// Returns the texts about its cost: one for any memory, or one for each class.
    pub fn formulas(&self) -> Vec<FormulaText> {
        self.formulas_of(2)
    }

    /// As [`Algorithm::formulas`], of the formula for `ranks`; the texts are the same for any
    /// number.
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
            Costs::Parts(_, texts) | Costs::OfUnits(_, texts) => {
                vec![FormulaText::new(None, texts.map(str::to_owned))]
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
    /// The algorithm that brings contributions to the owners, if the collective combines.
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
