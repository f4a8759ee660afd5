//! Dissemination barrier (Hensgen, Finkel, Manber 1988).
//!
//! In round k every rank signals the one 2^k after it. After ⌈log2 P⌉ rounds each rank has heard, by way of
//! others, from all.

use weft_schedule::{Grid, Schedule};

use crate::builder::Builder;
use crate::cost::{Cost, Phase};
use crate::{About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "dissemination",
    collective: "barrier",
    summary: "rank r signals r + 1, 2, 4 ...; any transport",
    about: About {
        how: "In round k every rank signals the rank 2^k after it and waits for the one 2^k before it. After \
              the last round it has heard, by way of others, from all.",
        formulas: &[Formula::any("⌈log₂ P⌉", "", "")],
        wins: "Always.",
        source: "Hensgen, Finkel and Manber, \"Two algorithms for barrier synchronization\", 1988",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let rounds = request.ranks.next_power_of_two().ilog2();
    Cost::of(request, [Phase::signals(rounds)])
}

fn textbook(&Terms { ceil_log, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "Hensgen, Finkel and Manber 1988: ⌈log2 p⌉ rounds",
        steps: ceil_log,
        sent: Volume::NOTHING,
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(1));
    let mut distance = 1;
    while distance < request.ranks {
        b.signal(b.after(distance));
        b.wait(b.before(distance));
        distance *= 2;
    }
    b.build()
}
