//! Binomial scatter, with the blocks of the ranks below a rank sent to it together and forwarded
//! from there.
//!
//! The ranks below a rank are its neighbours, so their blocks are side by side: one message, handed
//! on out of the receive buffer. For small blocks of equal size.

use weft_schedule::{Grid, Schedule};

use crate::cost::Cost;
use crate::cost::expression::{FLOOR_LOG, OTHER_BLOCKS};
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::range_tree::{TreePosition, along_ranges, scattering};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collective: "scatter",
    summary: "blocks are handed down a tree; few messages, any transport, for small blocks",
    about: About {
        how: "The blocks of all ranks below a rank in a tree, which are its neighbours, reach it as one message; it \
              forwards all but its own out of the receive buffer. Equal counts.",
        wins: "Small blocks on many ranks.",
        source: "Chan, Heimlich, Purkayastha and van de Geijn, \"Collective communication: theory, \
              practice, and experience\", 2007",
        quote: "Chan et al. 2007, minimum spanning tree scatter: ⌈log2 p⌉ rounds, (p - 1) n / p from the root",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Counted(cost, formula),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    Cost::of(request, scattering(request, request.block_share()))
}

fn formula(request: &ScheduleRequest) -> Formula {
    Formula::sum(FLOOR_LOG, OTHER_BLOCKS)
        .all_send(along_ranges(request.ranks))
        .sent_described("{} in ⌈log₂ P⌉ messages")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let ranks = request.ranks;
    let mut b = ProgramBuilder::new(request, Grid::Equal(ranks));
    let own = block(b.rank());
    if ranks == 1 {
        b.copy(vec![b.output(own.clone())], b.input(own));
        return b.build();
    }
    let receive = b.add_receive_buffer(ranks / 2);
    let TreePosition {
        parent,
        range,
        children,
    } = TreePosition::of(ranks, request.root(), request.rank);
    if let Some(parent) = parent {
        b.wait(parent);
    }
    let held = |b: &ProgramBuilder, chunks| match parent {
        Some(parent) => b.inbox(parent, receive.starting_at(range.start), chunks),
        None => b.input(chunks),
    };
    for (child, blocks) in children {
        let src = held(&b, blocks.clone());
        b.copy(vec![b.outbox(child, receive, blocks)], src);
        b.signal(child);
    }
    let src = held(&b, own.clone());
    b.copy(vec![b.output(own)], src);
    b.build()
}
