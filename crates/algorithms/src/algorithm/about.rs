//! Descriptions of algorithms for readers, the source of `docs/explanation/algorithms.md`.

use crate::{Formula, MemoryClass};

/// Prose, in Markdown.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// How it works.
    pub how: &'static str,
    /// For which messages and groups it is the best.
    pub wins: &'static str,
    /// The publication that describes it; empty if there is none.
    pub source: &'static str,
    /// Its cost as stated by the source, or derived from the steps.
    pub quote: &'static str,
}

/// The cost of an algorithm as text. `P` is the number of ranks, `N` the bytes of the whole
/// message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormulaText {
    /// In which memory. `None`: in any.
    pub memory: Option<MemoryClass>,
    /// The longest chain of signals.
    pub steps: String,
    /// The bytes that the busiest rank writes to others' memory or over the network; empty for
    /// none.
    pub sent: String,
    /// The bytes that the busiest rank reads in others' memory; empty for none.
    pub read: String,
}

impl FormulaText {
    pub(crate) fn new(memory: Option<MemoryClass>, [steps, sent, read]: [String; 3]) -> Self {
        FormulaText {
            memory,
            steps,
            sent,
            read,
        }
    }

    /// One line for both kinds of memory, or one for each if they differ.
    pub(crate) fn in_any_memory(formula: impl Fn(MemoryClass) -> Formula) -> Vec<Self> {
        let memories = [MemoryClass::Ordinary, MemoryClass::Symmetric];
        let [ordinary, symmetric] = memories.map(|memory| formula(memory).texts());
        if ordinary == symmetric {
            return vec![FormulaText::new(None, ordinary)];
        }
        vec![
            FormulaText::new(Some(MemoryClass::Ordinary), ordinary),
            FormulaText::new(Some(MemoryClass::Symmetric), symmetric),
        ]
    }
}
