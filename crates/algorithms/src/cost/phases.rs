//! Costs of algorithms in closed form, for any number of ranks.

use crate::ScheduleRequest;

/// Equal rounds.
///
/// A *share* is a part of the whole message. Every figure is that of the rank for which it is
/// greatest over the whole operation, so that the sums over all phases equal the verifier's counts;
/// a root and its leaves may thus stand in one phase. Shares that vary from round to round are
/// averages.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Phase {
    /// Latency steps: signals, one waited for after the other.
    pub rounds: u32,
    /// Messages that a rank sends per round. Writes to its peers' mapped memory count as well.
    pub messages: u32,
    /// The share that one of these messages carries.
    pub share: f64,
    /// The share that a rank receives per round. Links carry both directions at the same time, so
    /// the greater of this and [`Phase::sent`] matters.
    pub received: f64,
    /// The share that passes the border of an outermost unit of the topology (a host, say) per
    /// round, sent or read by all its ranks together: of the unit for which that is most, in the
    /// direction in which it is more.
    pub crossing: f64,
    /// The share that a rank reads from its peers' mapped memory per round.
    pub read: f64,
    /// The share that a rank combines per round: all sources, its own included.
    pub reduced: f64,
    /// The share that a rank copies within its own memory per round.
    pub copied: f64,
    /// Whether signals without bytes stay inside units; for others, the crossing says so.
    pub inside: bool,
}

impl Phase {
    /// The share that a rank sends per round.
    pub fn sent(&self) -> f64 {
        f64::from(self.messages) * self.share
    }

    /// The rounds of this phase one by one, over which the messages sent and received, and the
    /// reductions and copies of `total`, are spread.
    pub(crate) fn spread(&self, messages: u32, received: u32, total: Phase) -> Vec<Phase> {
        let part = |number: u32, round: u32| {
            number / self.rounds + u32::from(round < number % self.rounds)
        };
        let rounds = 0..self.rounds;
        rounds
            .map(|round| Phase {
                rounds: 1,
                messages: part(messages, round),
                received: f64::from(part(received, round)) * self.share,
                reduced: total.reduced / f64::from(self.rounds),
                copied: total.copied / f64::from(self.rounds),
                ..*self
            })
            .collect()
    }

    /// This phase together with another one, in the rounds of this one; there are as many of the
    /// other.
    pub(crate) fn along_with(&self, other: &Phase) -> Phase {
        let messages = self.messages + other.messages;
        Phase {
            rounds: self.rounds,
            messages,
            share: (self.sent() + other.sent()) / f64::from(messages.max(1)),
            received: self.received + other.received,
            crossing: self.crossing + other.crossing,
            read: self.read + other.read,
            reduced: self.reduced + other.reduced,
            copied: self.copied + other.copied,
            inside: self.inside && other.inside,
        }
    }

    /// Rounds of signals.
    pub(crate) fn signals(rounds: u32) -> Phase {
        Phase {
            rounds,
            ..Phase::default()
        }
    }

    /// Rounds in each of which every rank sends and receives as many messages.
    pub(crate) fn exchange(rounds: u32, messages: u32, share: f64) -> Phase {
        Phase {
            rounds,
            messages,
            received: f64::from(messages) * share,
            share,
            ..Phase::default()
        }
    }
}

/// The cost of an algorithm.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cost {
    /// One after the other.
    pub phases: Vec<Phase>,
}

impl Cost {
    /// The cost of these phases, where there is more than one rank; one rank alone does not
    /// communicate.
    pub(crate) fn of(request: &ScheduleRequest, phases: impl IntoIterator<Item = Phase>) -> Cost {
        let phases = phases.into_iter();
        Cost {
            phases: phases
                .filter(|phase| phase.rounds > 0 && request.ranks > 1)
                .collect(),
        }
    }

    /// The cost of an algorithm in which ranks do different things, from the phases of each rank:
    /// as many, with the same rounds. Every figure is taken from a rank for which its sum is
    /// greatest.
    pub(crate) fn of_busiest(
        request: &ScheduleRequest,
        ranks: impl IntoIterator<Item = Vec<Phase>>,
    ) -> Cost {
        let mut ranks = ranks.into_iter().map(|phases| Cost::of(request, phases));
        let mut busiest = ranks.next().unwrap_or_default();
        let mut most = FIGURES.map(|figure| busiest.sum(figure.of));
        for rank in ranks {
            for (figure, most) in FIGURES.iter().zip(&mut most) {
                let sum = rank.sum(figure.of);
                if sum > *most {
                    *most = sum;
                    let phases = busiest.phases.iter_mut().zip(&rank.phases);
                    phases.for_each(|(phase, of)| (figure.take)(phase, of));
                }
            }
        }
        busiest
    }

    /// The sum of a figure over all rounds.
    pub fn sum(&self, figure: impl Fn(&Phase) -> f64) -> f64 {
        let phases = self.phases.iter();
        phases
            .map(|phase| f64::from(phase.rounds) * figure(phase))
            .sum()
    }
}

/// A figure of a phase that differs between ranks.
struct Figure {
    of: fn(&Phase) -> f64,
    take: fn(&mut Phase, &Phase),
}

const FIGURES: [Figure; 5] = [
    Figure {
        of: Phase::sent,
        take: |phase, of| (phase.messages, phase.share) = (of.messages, of.share),
    },
    Figure {
        of: |phase| phase.received,
        take: |phase, of| phase.received = of.received,
    },
    Figure {
        of: |phase| phase.read,
        take: |phase, of| phase.read = of.read,
    },
    Figure {
        of: |phase| phase.reduced,
        take: |phase, of| phase.reduced = of.reduced,
    },
    Figure {
        of: |phase| phase.copied,
        take: |phase, of| phase.copied = of.copied,
    },
];
