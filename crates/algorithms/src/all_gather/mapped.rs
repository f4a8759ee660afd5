//! All-gather by reads: copies of the blocks straight out of peers' memory, for ranks of one host.
//!
//! Symmetric memory: out of their inputs. Ordinary memory: each rank shows its block in its scratch
//! memory. A rank ends when all have signalled that they have read.

use weft_schedule::Schedule;

use crate::cost::expression::{BLOCK, OTHER_BLOCKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "mapped",
    collective: "all-gather",
    summary: "every rank reads the blocks from its peers' memory; for one host",
    about: About {
        how: "Every rank copies the blocks out of its peers' inputs (symmetric memory) or scratch memory. One \
              copy of each block less than direct with ordinary memory.",
        wins: "All but the smallest messages on one host.",
        source: "",
        quote: "one look at all",
    },
    requires: Requirements::MAPPED,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let show = Rounds::signals(1).copying(request.staged(BLOCK) + BLOCK);
    let collect = Rounds::signals(1)
        .crossing(crossing::all_pairs(request) * request.block_share())
        .reading(OTHER_BLOCKS);
    Formula::of([show, collect])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    let shown = (!b.symmetric()).then(|| b.add_scratch(1));
    let own = block(b.rank());
    if let Some(scratch) = shown {
        let dsts = vec![b.scratch(scratch, own.clone()), b.output(own.clone())];
        b.copy(dsts, b.input(own));
        b.signal_all();
    } else {
        b.signal_all();
        b.copy(vec![b.output(own.clone())], b.input(own));
    }

    for source in b.sources() {
        b.wait(source);
        let theirs = block(source);
        let src = match shown {
            Some(scratch) => b.scratch_of(source, scratch, theirs.clone()),
            None => b.input_of(source, theirs.clone()),
        };
        b.copy(vec![b.output(theirs)], src);
        b.signal(source);
    }
    b.wait_all();
    b.build()
}
