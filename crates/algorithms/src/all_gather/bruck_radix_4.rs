//! Bruck's all-gather with three ports: a rank sends to three others in each step, and has four times as many blocks after it.

use weft_schedule::Schedule;

use super::bruck::{build_by, cost_by};
use crate::cost::Cost;
use crate::{About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "bruck-radix-4",
    collective: "all-gather",
    summary: "all blocks so far to three ranks per step; half the steps of bruck, any transport",
    about: About {
        how: "In step k every rank sends all blocks that it has to the ranks 4^k, 2 · 4^k and 3 · 4^k before \
              it, as far as these are other ranks that lack them. As `bruck`, with half as many steps and \
              three messages in each.",
        formulas: &[
            Formula::ordinary("⌈log₄ P⌉", "N (P − 1) / P", ""),
            Formula::symmetric("1 + ⌈log₄ P⌉", "N (P − 1) / P", ""),
        ],
        wins: "Small messages on a network whose latency is several times the time that a message takes its sender, on \
              more ranks than `direct` can send to at once.",
        source: "Bruck, Ho, Kipnis, Upfal and Weathersby, \"Efficient algorithms for all-to-all \
              communications in multiport message-passing systems\", 1997",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

const RADIX: u32 = 4;

fn cost(request: &Request) -> Cost {
    cost_by(request, RADIX)
}

fn textbook(
    &Terms {
        p, ceil_log, entry, ..
    }: &Terms,
) -> Textbook {
    Textbook {
        quote: "Bruck et al. 1997, concatenation with k ports: ⌈log p / log (k + 1)⌉ rounds, (p - 1) n / p",
        steps: ceil_log.div_ceil(2) + entry,
        sent: Volume::all_but_one(p),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    build_by(request, RADIX)
}
