//! Assumptions of the verifier about the machine.

use crate::ir::Rank;

/// Which memory of its peers a rank can reach with loads and stores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mapped {
    /// None: the only remote access is a [`Copy`](crate::Step::Copy) into a peer's `Receive`.
    #[default]
    None,
    /// The temporary memory: `Scratch` may be read and written, and a reduction may write into
    /// `Receive`.
    Scratch,
    /// The temporary memory and the user's: symmetric memory.
    All,
}

/// Assumptions of the verifier about the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyOptions {
    /// The memory of each other that ranks on one host map.
    pub mapped: Mapped,
    /// The host of each rank; ranks on different hosts map nothing. `None`: all are on one host.
    pub hosts: Option<Vec<u32>>,
    /// Up to how many combinations of claimants are all executed. Where there are more,
    /// every claimant of every step is executed once, with the other steps left to their owners.
    pub claim_executions: u32,
    /// The number of tiles of a rank in flight, each in its slot of temporary memory.
    pub slots: u32,
    /// How many tiles of each operation are executed. Slots are used again within an operation if
    /// there are more than `slots`.
    pub tiles: u32,
    /// How many operations are executed, one after the other in the same slots.
    pub operations: u32,
}

/// As in the executor.
const SLOTS: u32 = 2;

impl Default for VerifyOptions {
    fn default() -> Self {
        VerifyOptions {
            mapped: Mapped::None,
            hosts: None,
            claim_executions: 64,
            slots: SLOTS,
            tiles: SLOTS + 1,
            operations: 2,
        }
    }
}

impl VerifyOptions {
    /// The default, but with this memory mapped.
    pub fn mapped(mapped: Mapped) -> Self {
        VerifyOptions {
            mapped,
            ..VerifyOptions::default()
        }
    }

    /// The same, but only one tile is executed. That is enough, and quicker: see
    /// [Note: One tile speaks for all] in the source.
    pub fn one_tile(self) -> Self {
        VerifyOptions {
            tiles: 1,
            operations: 1,
            ..self
        }
    }

    /// The memory of each other that `a` and `b` map.
    pub(super) fn between(&self, a: Rank, b: Rank) -> Mapped {
        match &self.hosts {
            Some(hosts) if hosts[a as usize] != hosts[b as usize] => Mapped::None,
            _ => self.mapped,
        }
    }
}
