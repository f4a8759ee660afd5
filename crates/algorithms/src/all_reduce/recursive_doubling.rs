//! Recursive-doubling all-reduce: exchanges and reductions of partial results between ranks at
//! distances 1, 2, 4 ...
//!
//! Fewest rounds with one message each, at the price of the whole message in every round. Where the
//! number of ranks is no power of two, each rank too many first hands its vector to a neighbour and
//! gets the result from it in the end.
//!
//! Both partners combine in the same order, the lower one's partial result first, so all get the
//! same bits. Every ordered pair of ranks exchanges one message, so all share one place in the
//! receive buffer.

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::expression::FLOOR_LOG;
use crate::cost::{Cost, Phase};
use crate::patterns::builder::{Area, ProgramBuilder};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "recursive-doubling",
    collective: "all-reduce",
    summary: "ranks at distances 1, 2, 4 ... exchange everything; fewest rounds, any transport, for small messages",
    about: About {
        how: "In round k ranks at a distance of 2^k exchange everything they have and both reduce, the lower \
              rank's part first. Ranks beyond a power of two hand their vector to a neighbour before, and \
              get the result after.",
        wins: "Small messages on networks, beyond the number of ranks where direct floods them: fewest steps \
              with one message each.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.5",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.5: log2 p rounds of n, and two more of n where \
              ranks are too many",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Exclusive,
    costs: Costs::Counted(cost, formula),
    build,
};

/// The greatest power of two ranks take part in the rounds; the ranks too many are the even ones of
/// the lowest.
#[derive(Clone, Copy)]
struct Folding {
    count: u32,
    too_many: u32,
}

impl Folding {
    fn of(ranks: u32) -> Self {
        let count = ranks.ilog2();
        Folding {
            count,
            too_many: ranks - (1 << count),
        }
    }

    /// Whether the contribution of a surplus rank can reach another surplus rank through all
    /// rounds, each of which changes one bit of the position: the positions of their neighbours are
    /// each other's complements.
    fn folds_in_turn(self) -> bool {
        2 * self.too_many > 1 << self.count
    }

    fn stands_out(self, rank: Rank) -> bool {
        rank < 2 * self.too_many && rank.is_multiple_of(2)
    }

    /// The partner in a round of a rank that takes part.
    fn partner(self, rank: Rank, round: u32) -> Rank {
        let position = match rank < 2 * self.too_many {
            true => rank / 2,
            false => rank - self.too_many,
        };
        let partner = position ^ 1 << round;
        match partner < self.too_many {
            true => 2 * partner + 1,
            false => partner + self.too_many,
        }
    }
}

fn cost(request: &ScheduleRequest) -> Cost {
    let rounds = Folding::of(request.ranks);
    let stand_ins = (0..rounds.too_many).map(|pair| (2 * pair, 2 * pair + 1));
    let fold_in = Phase {
        crossing: crossing::of(request, stand_ins),
        received: 1.0,
        reduced: 2.0,
        ..Phase::signals(u32::from(rounds.too_many > 0))
    };
    let fold_out = Phase {
        messages: 1,
        share: 1.0,
        received: 0.0,
        reduced: 0.0,
        copied: request.staged(1.0),
        ..fold_in
    };
    let folds = match rounds.folds_in_turn() {
        true => vec![fold_in, fold_out],
        false => vec![fold_in.along_with(&fold_out)],
    };
    let exchanges = (0..rounds.count).map(|round| {
        let participants = (0..request.ranks).filter(|rank| !rounds.stands_out(*rank));
        let messages = participants.map(|rank| (rank, rounds.partner(rank, round)));
        Phase {
            crossing: crossing::of(request, messages),
            reduced: 2.0,
            ..Phase::exchange(1, 1, 1.0)
        }
    });
    Cost::of(request, folds.into_iter().chain(exchanges))
}

fn formula(request: &ScheduleRequest) -> Formula {
    let rounds = Folding::of(request.ranks);
    let folds = u32::from(rounds.too_many > 0);
    let total = (request.ranks - rounds.too_many) * rounds.count + 2 * rounds.too_many;
    // Unless there are many, no chain of signals begins with a surplus rank's contribution and ends
    // with another's result.
    Formula::sum(
        FLOOR_LOG + folds + u32::from(rounds.folds_in_turn()),
        FLOOR_LOG + folds,
    )
    .all_send(total)
    .steps_described("⌊log₂ P⌋ for powers of two, else 1 or 2 more")
    .sent_described("N ⌊log₂ P⌋ for powers of two, else N more")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let receive = b.add_receive_buffer(1);
    let results = (!b.symmetric()).then_some(receive);
    let rounds = Folding::of(request.ranks);
    let (rank, vector) = (b.rank(), b.everything());
    if rounds.stands_out(rank) {
        b.copy(
            vec![b.outbox(rank + 1, receive, vector.clone())],
            b.output(vector.clone()),
        );
        b.signal(rank + 1);
        b.accept(rank + 1, results, vector);
        return b.build();
    }
    let stand_in = rank < 2 * rounds.too_many;
    if stand_in {
        b.wait(rank - 1);
        combine(&mut b, rank - 1, receive, false);
    }
    for round in 0..rounds.count {
        let partner = rounds.partner(rank, round);
        b.copy(
            vec![b.outbox(partner, receive, vector.clone())],
            b.output(vector.clone()),
        );
        b.signal(partner);
        b.wait(partner);
        combine(&mut b, partner, receive, round + 1 == rounds.count);
    }
    if stand_in {
        b.deliver(rank - 1, b.output(vector.clone()), results, vector);
    }
    b.build()
}

/// Combines a peer's partial result with this rank's, the lower rank's first.
fn combine(b: &mut ProgramBuilder, peer: Rank, receive: Area, last: bool) {
    let vector = b.everything();
    let own = b.output(vector.clone());
    let mut srcs = vec![own.clone(), b.inbox(peer, receive, vector)];
    if peer < b.rank() {
        srcs.swap(0, 1);
    }
    if last {
        b.reduce_final(vec![own], srcs);
    } else {
        b.reduce(own, srcs);
    }
}
