//! What people are told about an algorithm: `docs/algorithms.md` is made from it.

use crate::Memory;

/// Prose and formulas, in Markdown. `P` is the number of ranks, `N` the bytes of the whole message.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// How it works.
    pub how: &'static str,
    /// What it costs, where there is more than one rank.
    pub formulas: &'static [Formula],
    /// For which messages and groups it is the best.
    pub wins: &'static str,
    /// Who has described it; empty where nobody in particular has.
    pub source: &'static str,
}

/// What an algorithm costs, for people; [`Algorithm::cost`](crate::Algorithm::cost) is for programs.
#[derive(Clone, Copy, Debug)]
pub struct Formula {
    /// In which memory. `None`: in any.
    pub memory: Option<Memory>,
    /// The longest chain of signals.
    pub steps: &'static str,
    /// What the busiest rank writes to others' memory, or over the network; empty for nothing.
    pub sent: &'static str,
    /// What the busiest rank reads in others' memory; empty for nothing.
    pub read: &'static str,
}

impl Formula {
    /// Whatever the memory.
    pub(crate) const fn any(steps: &'static str, sent: &'static str, read: &'static str) -> Self {
        Formula {
            memory: None,
            steps,
            sent,
            read,
        }
    }

    /// In ordinary memory.
    pub(crate) const fn ordinary(
        steps: &'static str,
        sent: &'static str,
        read: &'static str,
    ) -> Self {
        Formula {
            memory: Some(Memory::Ordinary),
            ..Formula::any(steps, sent, read)
        }
    }

    /// In symmetric memory.
    pub(crate) const fn symmetric(
        steps: &'static str,
        sent: &'static str,
        read: &'static str,
    ) -> Self {
        Formula {
            memory: Some(Memory::Symmetric),
            ..Formula::any(steps, sent, read)
        }
    }
}
