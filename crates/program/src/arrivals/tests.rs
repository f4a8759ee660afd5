use weft_algorithms::{MemoryClass, ScheduleRequest, Sizes, Topology, select};
use weft_schedule::{Collective, parse};

use super::*;
use crate::{Instruction, Location, Operand, Program};

/// A schedule in which every rank is on a separate host.
fn schedule(collective: Collective, name: &str, ranks: u32, rank: u32) -> Schedule {
    let hosts: Vec<u32> = (0..ranks).collect();
    let request = ScheduleRequest {
        collective,
        ranks,
        rank,
        memory: MemoryClass::Ordinary,
        sizes: Sizes::Equal,
        topology: &Topology::hosts(&hosts),
        parts: &[],
    };
    select(collective.name(), name).unwrap().build(&request)
}

fn compiled(schedule: &Schedule) -> Program {
    Program::compile(schedule, &|_| false).unwrap()
}

/// The destination and the source of an arrival's copy.
fn operands<'a>(program: &'a Program, arrival: &Arrival) -> (&'a Operand, &'a Operand) {
    let Instruction::Arrive { step, .. } = program.instructions[arrival.at] else {
        panic!("{:?}", program.instructions[arrival.at]);
    };
    let operands = program.operands(step.operands);
    (&operands[0], &operands[1])
}

/// The chunks of every arrival, the peer, and the instruction after which it may arrive.
fn described(program: &Program) -> Vec<(Range<u32>, Rank, Option<Instruction>)> {
    let describe = |arrival: &Arrival| {
        let (output, landed) = operands(program, arrival);
        assert_eq!(output.location, Location::Output(program.shape.rank));
        assert!(matches!(landed.location, Location::Receive { from, .. } if from == arrival.from));
        let before = arrival.after.checked_sub(1);
        let last = before.map(|before| program.instructions[before]);
        (output.chunks.clone(), arrival.from, last)
    };
    program.arrivals.iter().map(describe).collect()
}

/// The source operand of a put.
fn put_from(program: &Program, instruction: Option<Instruction>) -> Option<&Operand> {
    match instruction {
        Some(Instruction::Put { src, .. }) => Some(program.operand(src)),
        _ => None,
    }
}

/// The number of plain copies from receive buffers to the output.
fn plain_copies(program: &Program) -> usize {
    let plain = |instruction: &&Instruction| match instruction {
        Instruction::Local(step) => {
            let [dst, src] = program.operands(step.operands) else {
                return false;
            };
            matches!(dst.location, Location::Output(_))
                && matches!(src.location, Location::Receive { .. })
        }
        _ => false,
    };
    program.instructions.iter().filter(plain).count()
}

/// Every finished part of an all-reduce may arrive as soon as this rank has sent its contribution
/// from there.
#[test]
fn finished_chunks_arrive_in_the_output() {
    for (name, ranks) in [("ring", 3), ("ring", 4), ("two-shot", 3), ("two-shot", 4)] {
        for rank in 0..ranks {
            let program = compiled(&schedule(Collective::AllReduce, name, ranks, rank));
            let arrivals = described(&program);
            assert_eq!(arrivals.len(), ranks as usize - 1, "{name}, rank {rank}");
            assert_eq!(plain_copies(&program), 0);
            for (chunks, _, last) in arrivals {
                let sent = put_from(&program, last).unwrap();
                assert_eq!(sent.location, Location::Output(rank));
                assert!(overlap(&sent.chunks, &chunks), "{name} {chunks:?}");
            }
        }
    }
}

/// Also where receive buffers are reused, and where blocks are halved.
#[test]
fn every_finished_chunk_is_an_arrival() {
    for (name, ranks) in [("ring", 9), ("halving-doubling", 8)] {
        for rank in 0..ranks {
            let program = compiled(&schedule(Collective::AllReduce, name, ranks, rank));
            assert!(!program.arrivals.is_empty());
            assert_eq!(plain_copies(&program), 0, "{name}, rank {rank}");
        }
    }
}

#[test]
fn unused_output_may_be_written_from_the_beginning() {
    for (collective, name) in [
        (Collective::AllGather, "ring"),
        (Collective::AllGather, "direct"),
        (Collective::Broadcast { root: 0 }, "binomial"),
        (Collective::Scatter { root: 0 }, "linear"),
    ] {
        let program = compiled(&schedule(collective, name, 4, 3));
        assert!(!program.arrivals.is_empty(), "{collective} {name}");
        for (chunks, _, last) in described(&program) {
            assert_eq!(last, None, "{collective} {name} {chunks:?}");
        }
    }
}

/// The caller's input may be the memory of the output: every block that is sent must be gone.
#[test]
fn all_to_all_blocks_arrive_after_input_is_read() {
    for name in ["direct", "pairwise"] {
        let program = compiled(&schedule(Collective::AllToAll, name, 4, 1));
        for arrival in &program.arrivals {
            let open = &program.instructions[arrival.after..arrival.at];
            let reads = |instruction: &Instruction| match instruction {
                Instruction::Put { src, .. } => {
                    matches!(program.operand(*src).location, Location::Input(_))
                }
                _ => false,
            };
            assert!(!open.iter().any(reads), "{name}");
        }
    }
}

/// Otherwise forwarded data would have to be in the receive buffer.
#[test]
fn forwarded_data_is_sent_from_the_output() {
    for (collective, name) in [
        (Collective::AllReduce, "ring"),
        (Collective::AllGather, "ring"),
        (Collective::Broadcast { root: 0 }, "binomial"),
        (Collective::Broadcast { root: 0 }, "double-tree"),
    ] {
        for rank in 0..8 {
            let program = compiled(&schedule(collective, name, 8, rank));
            for arrival in &program.arrivals {
                let (_, landed) = operands(&program, arrival);
                let again = |instruction: &Instruction| match instruction {
                    Instruction::Put { src, .. } => {
                        let src = program.operand(*src);
                        src.location == landed.location && overlap(&src.chunks, &landed.chunks)
                    }
                    _ => false,
                };
                let behind = &program.instructions[arrival.at..];
                assert!(!behind.iter().any(again), "{collective} {name} {rank}");
            }
        }
    }
}

/// Rank 0 of two, from lines of a schedule.
fn of_lines(lines: &str) -> Program {
    let text = format!(
        "format 2\ncollective all-reduce\nranks 2\ngrid equal 2\nscratch 2\nreceive 2 2\n\n\
         rank 0\n{lines}rank 1\n"
    );
    compiled(&parse(&text).unwrap()[0])
}

#[test]
fn used_output_has_no_arrival() {
    // A step between the wait and the copy uses the output or the received data.
    for lines in [
        "  wait 1 #0\n  copy scratch(0)[0] <- output[0]\n  copy output[0] <- receive(1:0)[0]\n",
        "  wait 1 #0\n  reduce output[0] <- output[0] + receive(1:1)[0]\n  copy output[0] <- receive(1:0)[0]\n",
        "  wait 1 #0\n  copy scratch(0)[0..2] <- receive(1:0)[0..2]\n  copy output[0] <- receive(1:0)[0]\n",
        "  wait 1 #0\n  copy output[0] <- receive(1:0)[0]\n  copy scratch(0)[0] <- receive(1:0)[0]\n",
    ] {
        let program = of_lines(lines);
        assert_eq!(program.arrivals, [], "{lines}");
        assert_eq!(plain_copies(&program), 1, "{lines}");
    }
}

#[test]
fn steps_on_other_chunks_allow_an_arrival() {
    let program = of_lines(
        "  copy 1.receive(0:0)[0] <- output[0]\n  signal 1 #0\n  wait 1 #0\n  reduce output[1] <- output[1] + receive(1:0)[1]\n  wait 1 #1\n  copy output[0] <- receive(1:1)[0]\n",
    );
    // After the put, which carries the signal.
    let [
        Arrival {
            from: 1,
            after: 1,
            at: 4,
        },
    ] = program.arrivals[..]
    else {
        panic!("{:?}", program.arrivals);
    };
}

#[test]
fn mapped_memory_has_no_arrivals() {
    let schedule = schedule(Collective::AllReduce, "ring", 4, 0);
    let program = Program::compile(&schedule, &|_| true).unwrap();
    assert_eq!(program.arrivals, []);
}
