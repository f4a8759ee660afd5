//! Data moved by each rank, as shares of the message, and costs with these figures.

use weft_schedule::{Grid, Schedule, Slice, Step};

use crate::cost::{Cost, Phase};

/// Data moved by one rank, as shares of the message.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Moved {
    sent: f64,
    received: f64,
    read: f64,
    reduced: f64,
    copied: f64,
}

impl Moved {
    pub(crate) fn of(cost: &Cost) -> Self {
        Moved {
            sent: cost.sum(Phase::sent),
            received: cost.sum(|phase| phase.received),
            read: cost.sum(|phase| phase.read),
            reduced: cost.sum(|phase| phase.reduced),
            copied: cost.sum(|phase| phase.copied),
        }
    }

    /// By the ranks of a component's programs. Copies from the input to the output are already
    /// there.
    pub(crate) fn by_rank(programs: &[Schedule]) -> Vec<Self> {
        let mut moved = vec![Moved::default(); programs.len()];
        for program in programs {
            for step in &program.steps {
                Moved::count(&mut moved, program, step);
            }
        }
        moved
    }

    fn count(moved: &mut [Moved], program: &Schedule, step: &Step) {
        let (dsts, srcs, reduces) = match step {
            Step::Copy { dsts, src, .. } => (dsts, std::slice::from_ref(src), false),
            Step::Reduce { dsts, srcs, .. } => (dsts, srcs.as_slice(), true),
            Step::Signal { .. } | Step::Wait { .. } => return,
        };
        let rank = program.rank;
        let share = share_of(&srcs[0], &program.grid);
        for dst in dsts.iter().filter(|dst| dst.rank != rank) {
            moved[dst.rank as usize].received += share;
        }
        let far = |slices: &[Slice]| slices.iter().filter(|s| s.rank != rank).count() as f64;
        let own = &mut moved[rank as usize];
        own.sent += far(dsts) * share;
        own.read += far(srcs) * share;
        if reduces {
            own.reduced += srcs.len() as f64 * share;
        } else if srcs[0].rank == rank {
            let kept = |dst: &&Slice| dst.rank == rank && !in_place(dst, &srcs[0]);
            own.copied += dsts.iter().filter(kept).count() as f64 * share;
        }
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        self.each(|value| value * factor)
    }

    fn each(self, change: impl Fn(f64) -> f64) -> Self {
        Moved {
            sent: change(self.sent),
            received: change(self.received),
            read: change(self.read),
            reduced: change(self.reduced),
            copied: change(self.copied),
        }
    }

    /// By phase: each figure of the role for which its sum over all phases is greatest.
    pub(crate) fn busiest(roles: &[[Moved; 3]]) -> [Moved; 3] {
        let most = |figure: fn(&Moved) -> f64| {
            let sum = |role: &[Moved; 3]| role.iter().map(figure).sum::<f64>();
            let busiest = roles.iter().max_by(|a, b| sum(a).total_cmp(&sum(b)));
            busiest.map_or([0.0; 3], |role| [0, 1, 2].map(|phase| figure(&role[phase])))
        };
        let figures = [
            most(|moved| moved.sent),
            most(|moved| moved.received),
            most(|moved| moved.read),
            most(|moved| moved.reduced),
            most(|moved| moved.copied),
        ];
        [0, 1, 2].map(|phase| Moved {
            sent: figures[0][phase],
            received: figures[1][phase],
            read: figures[2][phase],
            reduced: figures[3][phase],
            copied: figures[4][phase],
        })
    }

    /// The phases of a cost, with these figures in all.
    pub(crate) fn applied_to(self, cost: Cost) -> Vec<Phase> {
        let all = Moved::of(&cost);
        let factor = |wanted: f64, found: f64| if found > 0.0 { wanted / found } else { 0.0 };
        let phases = cost.phases.into_iter();
        let changed = phases.map(|phase| Phase {
            messages: if self.sent > 0.0 { phase.messages } else { 0 },
            share: match self.sent > 0.0 {
                true => phase.share * factor(self.sent, all.sent),
                false => phase.share,
            },
            received: phase.received * factor(self.received, all.received),
            read: phase.read * factor(self.read, all.read),
            reduced: phase.reduced * factor(self.reduced, all.reduced),
            copied: phase.copied * factor(self.copied, all.copied),
            ..phase
        });
        changed.collect()
    }
}

fn share_of(slice: &Slice, grid: &Grid) -> f64 {
    match grid {
        Grid::Equal(chunks) | Grid::Blocks(chunks) => {
            slice.chunks.len() as f64 / f64::from(*chunks)
        }
        Grid::Cuts(cuts) => {
            let at = |chunk: u32| {
                let cut = cuts[chunk as usize];
                f64::from(cut.numerator) / f64::from(cut.denominator)
            };
            at(slice.chunks.end) - at(slice.chunks.start)
        }
    }
}

/// Whether both are the user's memory of one rank, which is one and the same in a composed program.
fn in_place(a: &Slice, b: &Slice) -> bool {
    use weft_schedule::Buffer::{Input, Output};
    let user = |slice: &Slice| matches!(slice.buffer, Input | Output);
    a.rank == b.rank && user(a) && user(b)
}
