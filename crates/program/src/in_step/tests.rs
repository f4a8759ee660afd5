use weft_algorithms::{MemoryClass, ScheduleRequest, Sizes, Topology, select};
use weft_channel::{INLINE_HEADER, SlotSize};
use weft_schedule::{Collective, Schedule};

use super::*;
use crate::{Geometry, Kernel, Location, Operand};

fn schedule(collective: Collective, name: &str, ranks: u32, memory: MemoryClass) -> Schedule {
    let topology = Topology::flat(ranks);
    let request = ScheduleRequest {
        collective,
        ranks,
        rank: ranks - 1,
        memory,
        sizes: Sizes::Equal,
        topology: &topology,
        parts: &[],
    };
    let collective = collective.name();
    select(collective, name).unwrap().build(&request)
}

fn compiled(collective: Collective, name: &str, ranks: u32, memory: MemoryClass) -> Program {
    let schedule = schedule(collective, name, ranks, memory);
    let program = Program::compile(&schedule, &|_| true).unwrap();
    assert!(program.suits_calling_thread());
    program
}

#[test]
fn direct_schedules_without_root_keep_ranks_in_step() {
    for ranks in 2..9 {
        for (collective, in_step) in [
            (Collective::AllReduce, true),
            (Collective::AllToAll, true),
            (Collective::Barrier, true),
            (Collective::Reduce { root: 0 }, ranks == 1),
        ] {
            let program = compiled(collective, "direct", ranks, MemoryClass::Ordinary);
            assert_eq!(program.is_in_step(), in_step, "{collective}");
        }
    }
}

#[test]
fn ranks_without_signals_to_all_are_not_in_step() {
    let barrier = compiled(
        Collective::Barrier,
        "dissemination",
        4,
        MemoryClass::Ordinary,
    );
    assert!(!barrier.is_in_step());
    let ring = compiled(Collective::AllReduce, "ring", 4, MemoryClass::Ordinary);
    assert!(!ring.is_in_step());
}

#[test]
fn first_signals_are_entries_on_symmetric_memory() {
    for (collective, name) in [
        (Collective::AllReduce, "slice-reduce"),
        (Collective::AllGather, "mapped"),
        (Collective::ReduceScatter, "slice-reduce"),
    ] {
        let entries = |memory| compiled(collective, name, 4, memory).entries().len();
        assert_eq!(entries(MemoryClass::Symmetric), 3, "{collective}");
        assert_eq!(entries(MemoryClass::Ordinary), 0, "{collective}");
    }
}

#[test]
fn program_after_entry_omits_entry_signals() {
    let barrier = compiled(Collective::Barrier, "direct", 3, MemoryClass::Ordinary);
    let entries = [vec![1, 2], vec![0, 2], vec![0, 1]];
    assert_eq!(barrier.after_entry(&entries).instructions, []);
    // The root of a scatter first signals that its blocks are ready; the last rank, that it has
    // read them.
    let collective = Collective::Scatter { root: 0 };
    let scatter = compiled(collective, "linear", 3, MemoryClass::Symmetric);
    let [
        Instruction::Wait { from: 0, id: 0 },
        Instruction::Local(_),
        Instruction::Signal { to: 0, id: 0 },
    ] = &scatter.instructions[..]
    else {
        panic!("{scatter:?}");
    };
    let left = scatter
        .after_entry(&[vec![1, 2], vec![], vec![]])
        .instructions;
    let [Instruction::Local(_), Instruction::Signal { to: 0, id: 1 }] = &left[..] else {
        panic!("{left:?}");
    };
}

#[test]
fn entries_are_consecutive_within_their_slots() {
    for (elements, size) in [(0, 4), (1, 4), (3, 8), (1000, 2), (5000, 1), (65_536, 4)] {
        let program = compiled(
            Collective::AllReduce,
            "slice-reduce",
            4,
            MemoryClass::Ordinary,
        );
        assert!(program.room_on_calling_thread(elements, size).is_some());
        let copied = program
            .instructions
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::Local(step) if step.kernel == Kernel::Copy => {
                    Some(&program.operands(step.operands)[0])
                }
                _ => None,
            });
        let scratch = |operand: &&Operand| matches!(operand.location, Location::Scratch { .. });
        let (geometry, shape) = (
            Geometry::whole(&program, elements, size, size),
            &program.shape,
        );
        let end = copied.filter(scratch).map(|operand| {
            let start = geometry.offset(shape, operand, 0, 0);
            start + geometry.elements(shape, operand, 0, 0) * size
        });
        assert!(end.max().unwrap() <= SlotSize::Large.scratch_bytes());
    }
}

#[test]
fn small_payload_shares_the_cache_line_of_its_flag() {
    let program = compiled(Collective::AllReduce, "direct", 2, MemoryClass::Ordinary);
    let received = program.operands.iter().find(|operand| {
        operand.chunks == (0..1) && operand.location == Location::Receive { from: 0, entry: 0 }
    });
    let offset = |elements| {
        let geometry = Geometry::whole(&program, elements, 4, 4);
        geometry.offset(&program.shape, received.unwrap(), 0, 0)
    };
    assert_eq!(offset(2), INLINE_HEADER as u64);
    assert_eq!(offset(1024), 64);
    for (bytes, expected) in [
        (SlotSize::Small.receive_bytes(), Some(SlotSize::Small)),
        (SlotSize::Small.receive_bytes() + 64, Some(SlotSize::Large)),
        (SlotSize::Large.receive_bytes(), Some(SlotSize::Large)),
        (SlotSize::Large.receive_bytes() + 64, None),
    ] {
        assert_eq!(program.room_on_calling_thread(bytes / 4, 4), expected);
    }
}
