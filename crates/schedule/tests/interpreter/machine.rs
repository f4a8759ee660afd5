//! The memory of all ranks, element by element, and the representation of elements.

use std::collections::HashMap;
use std::ops::Range;

use weft_schedule::{
    Buffer, Collective, Encoding, Grid, Mapped, Rank, Schedule, Slice, VerifyOptions,
};

use super::random::mix;

/// The factor of a final reduction, by which doing it twice is detected.
const SCALE: u64 = 0x1234_5678_9abc_def1;

/// A rank's tile of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct InterpretedTile {
    pub(crate) rank: Rank,
    pub(crate) operation: u32,
    pub(crate) tile: u32,
}

/// An element's value: one number that does not depend on the order of combination, one that does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InterpretedElement {
    pub(crate) sum: u64,
    pub(crate) bits: u64,
    encoding: Encoding,
    /// The encoding that it was last rounded to.
    narrowest: Encoding,
}

/// An element of memory. `None` is poison: never written, or being written.
pub(crate) type CellValue = Option<InterpretedElement>;

/// An access that the machine cannot do.
#[derive(Debug)]
pub(crate) struct Impossible(pub(crate) String);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum InterpretedPlace {
    Input(InterpretedTile),
    Output(InterpretedTile),
    Scratch {
        rank: Rank,
        slot: u32,
        entry: u32,
    },
    Receive {
        rank: Rank,
        from: Rank,
        slot: u32,
        entry: u32,
    },
}

pub(crate) struct InterpreterMachine<'a> {
    first: &'a Schedule,
    options: &'a VerifyOptions,
    slots: u32,
    memory: HashMap<InterpretedPlace, Vec<CellValue>>,
}

impl<'a> InterpreterMachine<'a> {
    pub(crate) fn new(first: &'a Schedule, options: &'a VerifyOptions, slots: u32) -> Self {
        InterpreterMachine {
            first,
            options,
            slots,
            memory: HashMap::new(),
        }
    }

    pub(crate) fn mapped(&self, a: Rank, b: Rank) -> Mapped {
        let together = |hosts: &Vec<u32>| hosts[a as usize] == hosts[b as usize];
        if a == b || self.options.hosts.as_ref().is_none_or(together) {
            self.options.mapped
        } else {
            Mapped::None
        }
    }

    /// Fills the user memory of a tile: contributions where they are, poison elsewhere.
    pub(crate) fn enter(&mut self, tile: InterpretedTile) {
        let rank = tile.rank;
        let output_filled = match self.first.collective {
            Collective::AllReduce | Collective::Reduce { .. } => true,
            Collective::Broadcast { root } => root == rank,
            _ => false,
        };
        let input: Vec<CellValue> = self.contribution(tile);
        let output = if output_filled {
            input.clone()
        } else {
            vec![None; input.len()]
        };
        self.memory.insert(InterpretedPlace::Input(tile), input);
        self.memory.insert(InterpretedPlace::Output(tile), output);
    }

    /// The user's memory is the user's again.
    pub(crate) fn leave(&mut self, tile: InterpretedTile) -> (Vec<CellValue>, Vec<CellValue>) {
        let input = self.memory.remove(&InterpretedPlace::Input(tile)).unwrap();
        let output = self.memory.remove(&InterpretedPlace::Output(tile)).unwrap();
        (input, output)
    }

    /// The contribution of a rank, for the whole message.
    pub(crate) fn contribution(&self, tile: InterpretedTile) -> Vec<CellValue> {
        let InterpretedTile {
            rank,
            operation,
            tile,
        } = tile;
        let element = |index: usize| {
            let seed = [rank, operation, tile, index as u32];
            let bits = seed.iter().fold(1, |bits, x| mix(bits ^ u64::from(*x)));
            Some(InterpretedElement {
                sum: bits,
                bits,
                encoding: Encoding::Native,
                narrowest: Encoding::Native,
            })
        };
        (0..self.bounds(0..self.first.grid.chunks()).end)
            .map(element)
            .collect()
    }

    /// Element positions of chunks. Chunks differ in size where the collective allows it.
    pub(crate) fn bounds(&self, chunks: Range<u32>) -> Range<usize> {
        let cut = |chunk: u32| {
            let chunk = chunk as usize;
            match (&self.first.grid, self.first.collective) {
                (_, Collective::AllToAll) | (Grid::Blocks(_), _) => chunk * 2,
                (
                    Grid::Equal(count),
                    Collective::AllGather
                    | Collective::ReduceScatter
                    | Collective::Gather { .. }
                    | Collective::Scatter { .. },
                ) => chunk * 3 * self.first.ranks as usize / *count as usize,
                (Grid::Equal(count), _) => chunk * (*count as usize * 3 / 2 + 1) / *count as usize,
                (Grid::Cuts(cuts), _) => cuts[chunk].of(24) as usize,
            }
        };
        cut(chunks.start)..cut(chunks.end)
    }

    pub(crate) fn read(
        &self,
        by: InterpretedTile,
        slice: &Slice,
    ) -> Result<Vec<CellValue>, Impossible> {
        let (place, range) = self.locate(by, slice)?;
        let needed = match slice.buffer {
            Buffer::Input | Buffer::Output => Mapped::All,
            Buffer::Scratch { .. } | Buffer::Receive { .. } => Mapped::Scratch,
        };
        if slice.rank != by.rank && self.mapped(by.rank, slice.rank) < needed {
            return Err(Impossible(format!("rank {} does not map {slice}", by.rank)));
        }
        let Some(memory) = self.memory.get(&place) else {
            return Ok(vec![None; range.len()]);
        };
        let rightly = |cell: &CellValue| cell.filter(|element| element.encoding == slice.encoding);
        Ok(memory[range].iter().map(rightly).collect())
    }

    /// Whether a store reaches the slice, rather than a put.
    pub(crate) fn stores(&self, by: Rank, slice: &Slice) -> bool {
        slice.rank == by
            || match slice.buffer {
                Buffer::Input | Buffer::Output => self.mapped(by, slice.rank) == Mapped::All,
                Buffer::Scratch { .. } | Buffer::Receive { .. } => {
                    self.mapped(by, slice.rank) >= Mapped::Scratch
                }
            }
    }

    /// Writes contents; poison where there are none.
    pub(crate) fn write(
        &mut self,
        by: InterpretedTile,
        slice: &Slice,
        contents: Option<&[CellValue]>,
    ) -> Result<(), Impossible> {
        let (place, range) = self.locate(by, slice)?;
        let capacity = self.capacity(place);
        let memory = match place {
            InterpretedPlace::Input(_) | InterpretedPlace::Output(_) => {
                match self.memory.get_mut(&place) {
                    Some(memory) => memory,
                    // Before entry or after exit: writes to it are lost for the operation.
                    None => return Ok(()),
                }
            }
            _ => self
                .memory
                .entry(place)
                .or_insert_with(|| vec![None; capacity]),
        };
        match contents {
            Some(contents) => memory[range].copy_from_slice(contents),
            None => memory[range].fill(None),
        }
        Ok(())
    }

    fn locate(
        &self,
        by: InterpretedTile,
        slice: &Slice,
    ) -> Result<(InterpretedPlace, Range<usize>), Impossible> {
        let impossible = || Impossible(format!("{slice} does not exist"));
        let tile = InterpretedTile {
            rank: slice.rank,
            ..by
        };
        let (rank, slot) = (slice.rank, by.tile % self.slots);
        let chunks = &slice.chunks;
        if rank >= self.first.ranks || chunks.is_empty() || chunks.end > self.first.grid.chunks() {
            return Err(impossible());
        }
        let (place, base) = match slice.buffer {
            Buffer::Input => (InterpretedPlace::Input(tile), 0),
            Buffer::Output => (InterpretedPlace::Output(tile), 0),
            Buffer::Scratch { entry, base } => {
                (InterpretedPlace::Scratch { rank, slot, entry }, base)
            }
            Buffer::Receive { from, entry, base } => (
                InterpretedPlace::Receive {
                    rank,
                    from,
                    slot,
                    entry,
                },
                base,
            ),
        };
        if base > chunks.start {
            return Err(impossible());
        }
        let offset = self.bounds(0..base).end;
        let range = self.bounds(chunks.clone());
        let range = range.start - offset..range.end - offset;
        if range.end > self.capacity(place) {
            return Err(impossible());
        }
        Ok((place, range))
    }

    /// The elements that fit in a place; 0 where there is no such place.
    fn capacity(&self, place: InterpretedPlace) -> usize {
        let chunks = self.first.grid.chunks();
        let widest = (0..chunks)
            .map(|chunk| self.bounds(chunk..chunk + 1).len())
            .max();
        let width = match place {
            InterpretedPlace::Input(_) | InterpretedPlace::Output(_) => {
                return self.bounds(0..chunks).end;
            }
            InterpretedPlace::Scratch { entry, .. } => self.first.scratch.get(entry as usize),
            InterpretedPlace::Receive { from, rank, .. }
                if from == rank || from >= self.first.ranks =>
            {
                None
            }
            InterpretedPlace::Receive { entry, .. } => self.first.receive.get(entry as usize),
        };
        width.map_or(0, |width| *width as usize * widest.unwrap_or(0))
    }
}

impl InterpretedElement {
    /// The element in another encoding. From 16 and 8 bits to the message's own type it stays the
    /// same number.
    pub(crate) fn encoded(self, encoding: Encoding) -> InterpretedElement {
        let widened = encoding == Encoding::Native && self.encoding != Encoding::F32;
        let narrowed_again = self.encoding == Encoding::Native
            && self.narrowest == encoding
            && encoding != Encoding::F32;
        if self.encoding == encoding || widened || narrowed_again {
            return InterpretedElement { encoding, ..self };
        }
        let bits = mix(self.bits ^ mix(0x100 + encoding as u64));
        InterpretedElement {
            bits,
            encoding,
            narrowest: encoding,
            ..self
        }
    }

    /// The combination of elements, in order.
    pub(crate) fn combined(
        sources: &[InterpretedElement],
        is_final: bool,
        encoding: Encoding,
    ) -> InterpretedElement {
        let mut sum = sources
            .iter()
            .fold(0_u64, |sum, source| sum.wrapping_add(source.sum));
        let mut bits = 0x200 + encoding as u64;
        for source in sources {
            bits = mix(bits.rotate_left(7) ^ source.bits);
        }
        if is_final {
            sum = scaled(sum);
            bits = mix(bits ^ 0x300);
        }
        InterpretedElement {
            sum,
            bits,
            encoding,
            narrowest: encoding,
        }
    }
}

/// The sum as a final reduction leaves it.
pub(crate) fn scaled(sum: u64) -> u64 {
    sum.wrapping_mul(SCALE)
}
