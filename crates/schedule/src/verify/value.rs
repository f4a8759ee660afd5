//! Symbolic contents: hash-consed expressions, so that equal ids mean equal bits.

use std::collections::HashMap;
use std::rc::Rc;

use crate::encoding::Encoding;
use crate::ir::Rank;

/// Names one expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ValueId(u32);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Node {
    /// The contribution of `rank` as `chunk`.
    Leaf { rank: Rank, chunk: u32 },
    /// The sources combined in this order and rounded once to the encoding.
    Combine {
        sources: Rc<[ValueId]>,
        is_final: bool,
        encoding: Encoding,
    },
    /// A value converted to another encoding.
    Rounded { encoding: Encoding, of: ValueId },
}

/// Why sources cannot be combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Uncombinable {
    /// This source, by position, is final already.
    AlreadyFinal { source: usize },
    /// This rank's contribution would be in twice.
    Doubled { contributor: Rank },
    /// The reduction is marked final, but this rank's contribution is not in.
    Missing { contributor: Rank },
}

/// All expressions of one verification.
pub(super) struct Values {
    ranks: u32,
    ids: HashMap<Node, ValueId>,
    known: Vec<Known>,
}

struct Known {
    node: Node,
    contributors: Rc<[u64]>,
    is_final: bool,
    encoding: Encoding,
}

impl Values {
    pub(super) fn new(ranks: u32) -> Self {
        Values {
            ranks,
            ids: HashMap::new(),
            known: Vec::new(),
        }
    }

    /// The contribution of `rank` as `chunk`.
    pub(super) fn leaf(&mut self, rank: Rank, chunk: u32) -> ValueId {
        let node = Node::Leaf { rank, chunk };
        if let Some(id) = self.ids.get(&node) {
            return *id;
        }
        let mut contributors = vec![0_u64; self.ranks.div_ceil(64) as usize];
        contributors[rank as usize / 64] = 1 << (rank % 64);
        self.add(Known {
            node,
            contributors: contributors.into(),
            is_final: false,
            encoding: Encoding::Native,
        })
    }

    /// `of`, converted where its encoding is another.
    pub(super) fn encoded(&mut self, of: ValueId, encoding: Encoding) -> ValueId {
        let narrow = self.narrow(of);
        let mut same = [of, narrow].into_iter();
        if let Some(same) = same.find(|id| self.at(*id).encoding == encoding) {
            return same;
        }
        let node = Node::Rounded {
            encoding,
            of: narrow,
        };
        if let Some(id) = self.ids.get(&node) {
            return *id;
        }
        let known = self.at(narrow);
        let known = Known {
            node,
            contributors: Rc::clone(&known.contributors),
            is_final: known.is_final,
            encoding,
        };
        self.add(known)
    }

    /// The combination of `sources`, in order.
    pub(super) fn combine(
        &mut self,
        sources: &[ValueId],
        is_final: bool,
        encoding: Encoding,
    ) -> Result<ValueId, Uncombinable> {
        let sources: Vec<ValueId> = sources.iter().map(|source| self.narrow(*source)).collect();
        let node = Node::Combine {
            sources: sources.as_slice().into(),
            is_final,
            encoding,
        };
        if let Some(id) = self.ids.get(&node) {
            return Ok(*id);
        }
        let mut contributors = vec![0_u64; self.ranks.div_ceil(64) as usize];
        for (source, id) in sources.iter().enumerate() {
            let known = self.at(*id);
            if known.is_final {
                return Err(Uncombinable::AlreadyFinal { source });
            }
            unite(&mut contributors, &known.contributors)?;
        }
        if is_final && let Some(contributor) = first_missing(&contributors, self.ranks) {
            return Err(Uncombinable::Missing { contributor });
        }
        Ok(self.add(Known {
            node,
            contributors: contributors.into(),
            is_final,
            encoding,
        }))
    }

    /// The same number before it was widened to the message's own type. That is exact, since the
    /// runtime takes encodings of 16 and 8 bits only for messages whose type holds their numbers.
    fn narrow(&self, id: ValueId) -> ValueId {
        match self.at(id) {
            Known {
                node: Node::Rounded { of, .. },
                encoding: Encoding::Native,
                ..
            } if self.at(*of).encoding != Encoding::F32 => *of,
            _ => id,
        }
    }

    fn at(&self, id: ValueId) -> &Known {
        &self.known[id.0 as usize]
    }

    /// The lowest rank that has not contributed.
    pub(super) fn missing(&self, id: ValueId) -> Option<Rank> {
        first_missing(&self.at(id).contributors, self.ranks)
    }

    /// Whether it is the outcome of a reduction marked final.
    pub(super) fn is_last(&self, id: ValueId) -> bool {
        self.at(id).is_final
    }

    /// The rank and chunk whose contribution this is, unless several are combined. Conversions are
    /// looked through.
    pub(super) fn origin(&self, id: ValueId) -> Option<(Rank, u32)> {
        let mut id = id;
        loop {
            match self.at(id).node {
                Node::Leaf { rank, chunk } => return Some((rank, chunk)),
                Node::Rounded { of, .. } => id = of,
                Node::Combine { .. } => return None,
            }
        }
    }

    /// The expression as text: ranks for contributions, `(a + b)` for a combination, `final(...)`
    /// where it is final, `bf16(...)` where rounded.
    pub(super) fn show(&self, id: ValueId) -> String {
        enum Piece {
            Text(&'static str),
            Value(ValueId),
        }
        let mut text = String::new();
        let mut pieces = vec![Piece::Value(id)];
        while let Some(piece) = pieces.pop() {
            let id = match piece {
                Piece::Text(piece) => {
                    text.push_str(piece);
                    continue;
                }
                Piece::Value(id) => id,
            };
            let known = self.at(id);
            match &known.node {
                Node::Leaf { rank, .. } => text.push_str(&rank.to_string()),
                Node::Rounded { encoding, of } => {
                    text.push_str(encoding.name());
                    text.push('(');
                    pieces.extend([Piece::Text(")"), Piece::Value(*of)]);
                }
                Node::Combine {
                    sources,
                    is_final,
                    encoding,
                } => {
                    if *is_final {
                        text.push_str("final");
                    }
                    if *encoding != Encoding::Native {
                        text.push('.');
                        text.push_str(encoding.name());
                    }
                    text.push('(');
                    pieces.push(Piece::Text(")"));
                    for (position, source) in sources.iter().enumerate().rev() {
                        pieces.push(Piece::Value(*source));
                        if position > 0 {
                            pieces.push(Piece::Text(" + "));
                        }
                    }
                }
            }
        }
        text
    }

    fn add(&mut self, known: Known) -> ValueId {
        let id = ValueId(self.known.len() as u32);
        self.ids.insert(known.node.clone(), id);
        self.known.push(known);
        id
    }
}

/// Adds `more` to `set`; both are bit sets of ranks that must have nothing in common.
fn unite(set: &mut [u64], more: &[u64]) -> Result<(), Uncombinable> {
    for (index, (word, more)) in set.iter_mut().zip(more).enumerate() {
        let common = *word & more;
        if common != 0 {
            let contributor = index as u32 * 64 + common.trailing_zeros();
            return Err(Uncombinable::Doubled { contributor });
        }
        *word |= more;
    }
    Ok(())
}

fn first_missing(set: &[u64], ranks: u32) -> Option<Rank> {
    (0..ranks).find(|rank| set[*rank as usize / 64] & (1 << (rank % 64)) == 0)
}
