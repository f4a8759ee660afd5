//! Programs for the calling thread: their suitability, whether they keep ranks in step, and the
//! rest of a program after all ranks have entered.

use weft_channel::INLINE_RANKS;
use weft_schedule::Rank;

use super::instruction::{Instruction, Program};

impl Program {
    /// Whether the calling-thread path can run it: it has no claims, sends nothing over links,
    /// needs no tiles of whole blocks, and no step has more operands than the most ranks of the
    /// path.
    pub fn suits_calling_thread(&self) -> bool {
        let mut instructions = self.instructions.iter();
        !self.is_scaled()
            && instructions.all(|instruction| match instruction {
                Instruction::Local(step) => {
                    let (all, dsts) = (
                        self.operands(step.operands).len(),
                        step.destinations as usize,
                    );
                    dsts.max(all - dsts) <= INLINE_RANKS
                }
                // Flag words have 16 bits for signal numbers, and one more signal may precede them.
                Instruction::Signal { id, .. } => *id < u32::from(u16::MAX) - 1,
                Instruction::Wait { .. } => true,
                Instruction::Arrive { .. }
                | Instruction::Put { .. }
                | Instruction::Claimable { .. } => false,
            })
    }

    /// Whether the rank signals to every other and waits for every other. If all ranks do, no rank
    /// ends before all have begun.
    pub fn is_in_step(&self) -> bool {
        let first = |instruction: &&Instruction| {
            matches!(
                instruction,
                Instruction::Signal { id: 0, .. } | Instruction::Wait { id: 0, .. }
            )
        };
        let others = self.shape.ranks as usize - 1;
        self.instructions.iter().filter(first).count() == 2 * others
    }

    /// The ranks to which the first signal reports only that this rank has entered.
    pub fn entries(&self) -> Vec<Rank> {
        let entry = |instruction: &Instruction| match instruction {
            Instruction::Signal { to, id: 0 } => Some(*to),
            _ => None,
        };
        self.instructions.iter().map_while(entry).collect()
    }

    /// The rest of a rank's program after all ranks have reported their entry to each other by a
    /// separate signal. `entries` are those of every rank.
    pub fn after_entry(self, entries: &[Vec<Rank>]) -> Program {
        let rank = self.shape.rank;
        let entry = |from: Rank, to: Rank| entries[from as usize].contains(&to);
        let left = |instruction| match instruction {
            Instruction::Signal { to, id } if !entry(rank, to) => {
                Some(Instruction::Signal { to, id: id + 1 })
            }
            Instruction::Wait { from, id } if !entry(from, rank) => {
                Some(Instruction::Wait { from, id: id + 1 })
            }
            Instruction::Signal { id: 0, .. } | Instruction::Wait { id: 0, .. } => None,
            other => Some(other),
        };
        Program {
            instructions: self.instructions.into_iter().filter_map(left).collect(),
            ..self
        }
    }

    /// Bytes of an element of the widest encoding that is not the message's own; 0 without any.
    pub fn widest_encoding(&self) -> u64 {
        let bytes = self
            .operands
            .iter()
            .map(|operand| operand.encoding.bytes(1, 0));
        bytes.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
