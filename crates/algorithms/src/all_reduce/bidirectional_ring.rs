//! Bidirectional-ring all-reduce, with one half of the message in each direction around the ring at
//! the same time.
//!
//! The same bytes and steps as the ring, but each step's bytes go half to the one neighbour and
//! half to the other: faster where the two are reached by different links.
//!
//! Staging: what comes in step k lands in place k modulo three. A neighbour that sends back what
//! depends on step k has consumed step k
//! - 1, so nobody needs to be told when a place is free. A pair of ranks uses the places for one
//!   direction only, unless there are but two.

use std::ops::Range;

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::expression::{BLOCK, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{Area, ProgramBuilder};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

/// Places in the receive buffer per direction.
const PLACES: u32 = 3;

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "bidirectional-ring",
    collective: "all-reduce",
    summary: "two halves travel around a ring in opposite directions; fewest bytes, any transport, for large messages",
    about: About {
        how: "Two rings at once, in opposite directions, each with half of the message. Every step's bytes go \
              half to the one neighbour and half to the other. What comes in step k shows that the neighbour \
              has consumed what was sent two steps before: three places of the receive buffer per direction are \
              enough.",
        wins: "Large messages where the two neighbours are reached by different links.",
        source: "",
        quote: "the ring's formula; Chan et al. 2007 has no line for two directions at once",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let neighbours = |rank: Rank| {
        let (right, left) = (rank + 1, rank + request.ranks - 1);
        [right, left].map(|peer| (rank, peer % request.ranks))
    };
    let halves = crossing::of(request, (0..request.ranks).flat_map(neighbours));
    let step =
        Rounds::exchange(OTHERS, 2, BLOCK / 2).crossing(halves * request.block_share() / 2.0);
    Formula::of([
        step.reducing(BLOCK * 2),
        step.copying(request.staged(BLOCK)),
    ])
}

/// One way around the ring, and the half of the message that goes it.
struct Direction {
    from: Rank,
    to: Rank,
    half: u32,
    places: Vec<Area>,
}

impl Direction {
    /// Where the put of a step lands.
    fn place(&self, step: u32) -> Area {
        self.places[step as usize % self.places.len()]
    }

    /// The half block that comes in a step: one further on each time, against the direction of
    /// travel.
    fn received(&self, b: &ProgramBuilder, step: u32) -> Range<u32> {
        self.block(b, (step + 2) % b.ranks())
    }

    /// The half block that is sent in a step.
    fn sent(&self, b: &ProgramBuilder, step: u32) -> Range<u32> {
        self.block(b, (step + 1) % b.ranks())
    }

    fn block(&self, b: &ProgramBuilder, distance: u32) -> Range<u32> {
        let block = match self.half {
            0 => b.before(distance),
            _ => b.after(distance),
        };
        let chunk = self.half * b.ranks() + block;
        chunk..chunk + 1
    }
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(2 * request.ranks));
    if request.ranks == 1 {
        return b.build();
    }
    let ways = ways(&mut b);
    let turn = request.ranks - 1;
    for step in 0..turn {
        for way in &ways {
            let sent = way.sent(&b, step);
            let dst = b.outbox(way.to, way.place(step), sent.clone());
            b.copy(vec![dst], b.output(sent));
            b.signal(way.to);
        }
        for way in &ways {
            let received = way.received(&b, step);
            b.wait(way.from);
            let own = b.output(received.clone());
            let srcs = vec![b.inbox(way.from, way.place(step), received), own.clone()];
            if step + 1 == turn {
                b.reduce_final(vec![own], srcs);
            } else {
                b.reduce(own, srcs);
            }
        }
    }
    for way in &ways {
        let sent = way.sent(&b, turn);
        let staging = (!b.symmetric()).then(|| way.place(turn));
        b.deliver(way.to, b.output(sent.clone()), staging, sent);
    }
    for step in turn..2 * turn {
        for way in &ways {
            pass_on(&mut b, way, step);
        }
    }
    b.build()
}

fn ways(b: &mut ProgramBuilder) -> [Direction; 2] {
    let places = |b: &mut ProgramBuilder| -> Vec<Area> {
        let steps = 2 * (b.ranks() - 1);
        (0..PLACES.min(steps))
            .map(|_| b.add_receive_buffer(1))
            .collect()
    };
    let (left, right) = (b.before(1), b.after(1));
    let clockwise = places(b);
    let counter = match left == right {
        true => places(b),
        false => clockwise.clone(),
    };
    [(left, right, 0, clockwise), (right, left, 1, counter)].map(|(from, to, half, places)| {
        Direction {
            from,
            to,
            half,
            places,
        }
    })
}

/// Takes the result that comes in a step, and sends it on unless it has come all the way round.
fn pass_on(b: &mut ProgramBuilder, way: &Direction, step: u32) {
    let received = way.received(b, step);
    let staged = !b.symmetric();
    b.wait(way.from);
    let mut dsts = Vec::new();
    let sends = step + 1 < 2 * (b.ranks() - 1);
    if sends {
        let staging = staged.then(|| way.place(step + 1));
        dsts.push(b.destination(way.to, staging, received.clone()));
    }
    let mut src = b.output(received.clone());
    if staged {
        dsts.push(src);
        src = b.inbox(way.from, way.place(step), received);
    }
    if !dsts.is_empty() {
        b.copy(dsts, src);
    }
    if sends {
        b.signal(way.to);
    }
}
