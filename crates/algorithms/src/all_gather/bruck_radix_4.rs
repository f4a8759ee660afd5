//! Bruck's all-gather with three ports: sends to three ranks in each step, and four times as many
//! blocks after it.

use weft_schedule::Schedule;

use super::bruck::{build_by, cost_by};
use crate::cost::Cost;
use crate::cost::expression::{CEIL_LOG_4, OTHER_BLOCKS};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "bruck-radix-4",
    collective: "all-gather",
    summary: "all blocks so far to three ranks per step; half the steps of bruck, any transport",
    about: About {
        how: "In step k every rank sends all blocks that it has to the ranks 4^k, 2 · 4^k and 3 · 4^k before \
              it, as far as these are other ranks that lack them. As `bruck`, with half as many steps and \
              three messages in each.",
        wins: "Small messages on a network whose latency is several times the time that a message takes its sender, on \
              more ranks than `direct` can send to at once.",
        source: "Bruck, Ho, Kipnis, Upfal and Weathersby, \"Efficient algorithms for all-to-all \
              communications in multiport message-passing systems\", 1997",
        quote: "Bruck et al. 1997, concatenation with k ports: ⌈log p / log (k + 1)⌉ rounds, (p - 1) n / p",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Counted(cost, formula),
    build,
};

const RADIX: u32 = 4;

fn cost(request: &ScheduleRequest) -> Cost {
    cost_by(request, RADIX)
}

fn formula(request: &ScheduleRequest) -> Formula {
    Formula::sum(CEIL_LOG_4 + request.entries(), OTHER_BLOCKS)
}

fn build(request: &ScheduleRequest) -> Schedule {
    build_by(request, RADIX)
}
