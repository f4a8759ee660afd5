//! Programs on the calling thread: suitability, programs that keep ranks in step, and the rest of a
//! program after all ranks have entered.

use weft_channel::INLINE_RANKS;
use weft_schedule::Rank;

use super::instruction::{Instruction, Program};

impl Program {
    /// Whether the calling-thread path can run it: nothing to claim, no link that must carry
    /// anything, no tiles that must be whole blocks, and no step with more operands than there can
    /// be ranks.
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
                // Flag words have 16 bits for the numbers of signals, and one more may go before
                // them.
                Instruction::Signal { id, .. } => *id < u32::from(u16::MAX) - 1,
                Instruction::Wait { .. } => true,
                Instruction::Arrive { .. }
                | Instruction::Put { .. }
                | Instruction::Claimable { .. } => false,
            })
    }

    /// Whether the rank signals to every other and waits for every other. If all ranks do, none
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

    /// Whom the first signal tells no more than that this rank has entered.
    pub fn entries(&self) -> Vec<Rank> {
        let entry = |instruction: &Instruction| match instruction {
            Instruction::Signal { to, id: 0 } => Some(*to),
            _ => None,
        };
        self.instructions.iter().map_while(entry).collect()
    }

    /// What is left of a rank's program if all have told each other that they have entered, by a
    /// signal before the others. `entries` are those of every rank.
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
