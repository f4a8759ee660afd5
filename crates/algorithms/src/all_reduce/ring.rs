//! Ring all-reduce (Patarasuk and Yuan 2009): reduce-scatter around the ring, then all-gather.
//!
//! In step k rank r sends block r - 1 - k to rank r + 1. In the first P - 1 steps it is a partial sum that
//! the receiver adds its own block to; rank r completes block r. In the other P - 1 steps it is a result.
//!
//! Bandwidth is optimal: each rank sends 2 (P - 1) / P of the message.
//!
//! Staging: each block of the message has its own place in the landing memory, used twice per tile. The second put
//! there carries the block's result, which the block's partial sum led to: it was consumed long before.
//! By the same chain every rank is known to have entered when the first result is sent.

use weft_schedule::{Grid, Schedule};

use crate::builder::{Area, Builder, block};
use crate::{Algorithm, Request, Requirements};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collective: "all-reduce",
    summary: "blocks travel around a ring twice; fewest bytes, any transport, for large messages",
    requires: Requirements::NONE,
    build,
};

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(request.ranks));
    if request.ranks == 1 {
        return b.build();
    }
    let landing = b.add_landing(request.ranks);
    reduce_scatter(&mut b, landing);
    if b.symmetric() {
        gather_in_place(&mut b);
    } else {
        gather_staged(&mut b, landing);
    }
    b.build()
}

/// Leaves the result of block r in rank r's output.
fn reduce_scatter(b: &mut Builder, landing: Area) {
    let (left, right) = (b.before(1), b.after(1));
    for distance in 1..b.ranks() {
        let sent = block(b.before(distance));
        b.copy(vec![b.outbox(right, landing, sent.clone())], b.output(sent));
        b.signal(right);

        let received = block(b.before(distance + 1));
        b.wait(left);
        let own = b.output(received.clone());
        let srcs = vec![b.inbox(left, landing, received), own.clone()];
        if distance + 1 == b.ranks() {
            b.reduce_last(vec![own], srcs);
        } else {
            b.reduce(own, srcs);
        }
    }
}

/// Results go straight into the neighbour's output.
fn gather_in_place(b: &mut Builder) {
    let (left, right) = (b.before(1), b.after(1));
    for distance in 0..b.ranks() - 1 {
        let sent = block(b.before(distance));
        b.copy(vec![b.output_of(right, sent.clone())], b.output(sent));
        b.signal(right);
        b.wait(left);
    }
}

/// Results are forwarded and copied out of the landing memory in one pass.
fn gather_staged(b: &mut Builder, landing: Area) {
    let (left, right) = (b.before(1), b.after(1));
    let own = block(b.rank());
    b.copy(vec![b.outbox(right, landing, own.clone())], b.output(own));
    b.signal(right);
    for distance in 1..b.ranks() {
        let received = block(b.before(distance));
        b.wait(left);
        let mut dsts = vec![b.output(received.clone())];
        let forward = distance + 1 < b.ranks();
        if forward {
            dsts.insert(0, b.outbox(right, landing, received.clone()));
        }
        b.copy(dsts, b.inbox(left, landing, received));
        if forward {
            b.signal(right);
        }
    }
}
