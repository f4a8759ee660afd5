//! Binomial-tree all-reduce: a reduction along the tree to rank 0, and a broadcast of the result
//! back along it.
//!
//! A rank combines its own vector and its whole subtrees in one pass, in the order of ranks.
//! Downwards each edge of the tree uses the receive buffer of the other direction.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{CEIL_LOG, Expr, FLOOR_LOG, OTHERS};
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::tree::Binomial;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collective: "all-reduce",
    summary: "along a binomial tree to rank 0 and back; few messages, any transport",
    about: About {
        how: "A binomial reduce to rank 0, then a binomial broadcast from it.",
        wins: "Small messages where every message costs a lot: only 2 (P − 1) altogether.",
        source: "Chan, Heimlich, Purkayastha and van de Geijn, \"Collective communication: theory, practice, \
              and experience\", 2007",
        quote: "Chan et al. 2007, minimum spanning tree reduce and broadcast: ⌈log2 p⌉ rounds of n each",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    // The root moves most: downwards it sends, upwards it receives.
    let down = tree(request).phases(request);
    let up = down.map(|phase| phase.turned().reducing((CEIL_LOG + 1) / FLOOR_LOG));
    let copied = request.staged(Expr::from(1)) / FLOOR_LOG;
    let down = down.map(|phase| phase.receiving(0).copying(copied));
    Formula::of(up.map(|phase| phase.sending(0, 1)).into_iter().chain(down))
        .all_send(OTHERS * 2)
        .telling_sent("rank 0: {}")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let receive = b.add_receive_buffer(1);
    let results = (!b.symmetric()).then_some(receive);
    let vector = b.everything();
    let tree = tree(request);
    let children = tree.children(request.rank);
    let own = b.output(vector.clone());
    let mut srcs = vec![own.clone()];
    for &child in &children {
        b.wait(child);
        srcs.push(b.inbox(child, receive, vector.clone()));
    }
    let mut held = own.clone();
    if let Some(parent) = tree.parent(request.rank) {
        if srcs.len() > 1 {
            b.reduce(own.clone(), srcs);
        }
        b.copy(vec![b.outbox(parent, receive, vector.clone())], own.clone());
        b.signal(parent);
        b.wait(parent);
        if let Some(area) = results {
            held = b.inbox(parent, area, vector.clone());
        }
    } else {
        b.reduce_final(vec![own.clone()], srcs);
    }
    for child in children.into_iter().rev() {
        b.deliver(child, held.clone(), results, vector.clone());
    }
    if held != own {
        b.copy(vec![own], held);
    }
    b.build()
}

fn tree(request: &ScheduleRequest) -> Binomial {
    Binomial {
        ranks: request.ranks,
        root: 0,
    }
}
