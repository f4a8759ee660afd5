//! The table of algorithms.

use serde::Serialize;
use weft_algorithms::{
    Algorithm, FormulaText, MemoryClass, Parts, Reach, Requirements, registry, select,
};

use crate::PlannerError;

/// Name, requirements and abilities of an algorithm.
#[derive(Clone, Debug, Serialize)]
pub struct AlgorithmInfo {
    /// The collective that it carries out.
    pub collective: &'static str,
    /// Its name, unique within the collective.
    pub name: &'static str,
    /// The name with its parts where it has some: those that are taken if none are named.
    pub full_name: String,
    /// One line of description.
    pub summary: &'static str,
    /// Its requirements and abilities.
    pub needs: AlgorithmNeeds,
    /// Its documentation.
    pub about: AlgorithmAbout,
    /// Its cost according to its source.
    pub textbook: &'static str,
}

/// The documentation of an algorithm.
#[derive(Clone, Debug, Serialize)]
pub struct AlgorithmAbout {
    /// How it works.
    pub how: &'static str,
    /// Its cost.
    pub formulas: Vec<AlgorithmFormula>,
    /// When it is the best.
    pub wins: &'static str,
    /// The publication that describes it.
    pub source: &'static str,
}

/// The cost of an algorithm as text.
#[derive(Clone, Debug, Serialize)]
pub struct AlgorithmFormula {
    /// In which memory: `ordinary`, `symmetric`, or `any`.
    pub memory: &'static str,
    /// The longest chain of signals.
    pub steps: String,
    /// The bytes that the busiest rank writes to others.
    pub sent: String,
    /// The bytes that the busiest rank reads from others.
    pub read: String,
}

/// Requirements and abilities of an algorithm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AlgorithmNeeds {
    /// The ranks whose temporary memory a rank reads: `none`, `unit` (those of its own host), or
    /// `all`.
    pub mapped: &'static str,
    /// Whether the caller's memory must be symmetric.
    pub symmetric: bool,
    /// Whether blocks may have a size per rank.
    pub per_rank_sizes: bool,
    /// Whether it combines every element at once, in the order of ranks.
    pub reproducible: bool,
    /// Whether it is for several hosts with several ranks each, or other units.
    pub units: bool,
}

impl AlgorithmAbout {
    fn of(algorithm: &Algorithm) -> Self {
        let about = algorithm.about;
        let formula = |formula: FormulaText| AlgorithmFormula {
            memory: match formula.memory {
                None => "any",
                Some(MemoryClass::Ordinary) => "ordinary",
                Some(MemoryClass::Symmetric) => "symmetric",
            },
            steps: formula.steps,
            sent: formula.sent,
            read: formula.read,
        };
        AlgorithmAbout {
            how: about.how,
            formulas: algorithm.formulas().into_iter().map(formula).collect(),
            wins: about.wins,
            source: about.source,
        }
    }
}

impl AlgorithmNeeds {
    pub(crate) fn of(requires: Requirements) -> Self {
        AlgorithmNeeds {
            mapped: match requires.mapped {
                Reach::None => "none",
                Reach::Unit => "unit",
                Reach::All => "all",
            },
            symmetric: requires.symmetric,
            per_rank_sizes: requires.per_rank_sizes,
            reproducible: requires.reproducible,
            units: matches!(requires.parts, Parts::Levels { .. } | Parts::Units),
        }
    }
}

/// All algorithms by collective, the collective's general-purpose one first.
///
/// # Errors
/// None, unless the table contradicts itself.
pub fn algorithms() -> Result<Vec<AlgorithmInfo>, PlannerError> {
    let info = |algorithm: &Algorithm| {
        let selection =
            select(algorithm.collective, algorithm.name).map_err(PlannerError::Algorithm)?;
        Ok(AlgorithmInfo {
            collective: algorithm.collective,
            name: algorithm.name,
            full_name: selection.name(),
            summary: algorithm.summary,
            needs: AlgorithmNeeds::of(selection.requires()),
            about: AlgorithmAbout::of(algorithm),
            textbook: algorithm.about.quote,
        })
    };
    registry().map(info).collect()
}
