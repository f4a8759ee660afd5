//! Lengths of signal chains, in the verifier's latency steps, and phases with fewer rounds.

use std::collections::HashMap;

use weft_schedule::{Schedule, Step};

use crate::cost::Phase;

/// By rank: the longest chain of signals at the end of these programs, if ranks begin at the ends
/// of chains as long as `begins`.
pub(crate) fn ends(programs: &[Schedule], begins: Vec<u32>) -> Vec<u32> {
    let mut lengths = begins;
    let mut next = vec![0; programs.len()];
    let mut sent = HashMap::new();
    let mut ended = 0;
    while ended < programs.len() {
        ended = 0;
        for (program, next) in programs.iter().zip(&mut next) {
            let rank = program.rank;
            let length = &mut lengths[rank as usize];
            while let Some(step) = program.steps.get(*next) {
                match step {
                    Step::Signal { to, id } => {
                        sent.insert((rank, *to, *id), *length + 1);
                    }
                    Step::Wait { from, id } => match sent.remove(&(*from, rank, *id)) {
                        Some(chain) => *length = chain.max(*length),
                        None => break,
                    },
                    Step::Copy { .. } | Step::Reduce { .. } => (),
                }
                *next += 1;
            }
            ended += usize::from(*next == program.steps.len());
        }
    }
    lengths
}

/// The phases without the first `saved` rounds; data moved in those is moved in the next.
pub(crate) fn shortened(phases: Vec<Phase>, mut saved: u32) -> Vec<Phase> {
    let mut shortened: Vec<Phase> = Vec::with_capacity(phases.len());
    let mut rest = phases.into_iter();
    while saved > 0
        && let Some(phase) = rest.next()
    {
        let dropped = saved.min(phase.rounds);
        saved -= dropped;
        let mut kept = Phase {
            rounds: phase.rounds - dropped,
            ..phase
        };
        let mut moved = phase;
        moved.rounds = dropped;
        if kept.rounds == 0 {
            let Some(next) = rest.next() else {
                shortened.push(phase);
                break;
            };
            kept = next;
        }
        shortened.push(with_moved(kept, &moved));
    }
    shortened.extend(rest);
    shortened
}

/// A phase in which also this is moved.
fn with_moved(phase: Phase, moved: &Phase) -> Phase {
    let per_round = f64::from(moved.rounds) / f64::from(phase.rounds);
    let messages = phase.messages.max(moved.messages);
    let sent = phase.sent() + moved.sent() * per_round;
    Phase {
        messages,
        share: if messages > 0 {
            sent / f64::from(messages)
        } else {
            0.0
        },
        received: phase.received + moved.received * per_round,
        crossing: phase.crossing + moved.crossing * per_round,
        read: phase.read + moved.read * per_round,
        reduced: phase.reduced + moved.reduced * per_round,
        copied: phase.copied + moved.copied * per_round,
        ..phase
    }
}

#[cfg(test)]
mod tests {
    use super::ends;
    use crate::{MemoryClass, ScheduleRequest, Sizes, Topology, find};
    use weft_schedule::Collective;

    #[test]
    fn broadcast_waits_for_late_entry_only() {
        let topology = Topology::flat(4);
        let programs: Vec<_> = (0..4)
            .map(|rank| {
                (find("broadcast", "binomial").unwrap().build)(&ScheduleRequest {
                    collective: Collective::Broadcast { root: 0 },
                    ranks: 4,
                    rank,
                    memory: MemoryClass::Symmetric,
                    sizes: Sizes::Equal,
                    topology: &topology,
                    parts: &[],
                })
            })
            .collect();
        assert_eq!(ends(&programs, vec![0; 4]).into_iter().max(), Some(3));
        assert_eq!(ends(&programs, vec![5, 0, 0, 0]).into_iter().max(), Some(7));
    }
}
