//! Tests of the event-driven simulation on small cases with times computed by hand.

use weft_algorithms::{MemoryClass, ScheduleRequest, Sizes, select};
use weft_schedule::{Buffer, Collective, Encoding, Grid, Rank, Schedule, Slice, Step, TileLimits};
use weft_simulate::{
    Host, Job, Machine, NetworkLink, ProgramSource, SimulationError, SimulationOptions,
    SimulationResult, SpanKind, Straggler, Switch, TraceSpan, simulate,
};

const BYTES: u64 = 1_000_000;
const SIZE: f64 = BYTES as f64;

/// Hosts with these numbers of ranks, and round figures.
fn machine(hosts: &[u32]) -> Machine {
    let host = Host {
        read_s_per_byte: 1e-9,
        write_s_per_byte: 2e-9,
        peer_s_per_byte: 4e-9,
        signal_s: 1e-6,
        step_s: 1e-7,
        ..Host::default()
    };
    let network = NetworkLink {
        latency_s: 1e-3,
        send_overhead_s: 2e-3,
        receive_overhead_s: 3e-3,
        send_s_per_byte: 1e-9,
        receive_s_per_byte: 2e-9,
        bytes_per_s: 1e8,
        ..NetworkLink::default()
    };
    let mut machine = Machine::even(1, 1, host, network).unwrap();
    machine.hosts = hosts.to_vec();
    machine
}

fn slice(rank: Rank, buffer: Buffer) -> Slice {
    Slice {
        rank,
        buffer,
        chunks: 0..1,
        encoding: Encoding::Native,
    }
}

fn receive(rank: Rank, from: Rank) -> Slice {
    let buffer = Buffer::Receive {
        from,
        entry: 0,
        base: 0,
    };
    slice(rank, buffer)
}

fn copy(dst: Slice, src: Slice) -> Step {
    Step::Copy {
        dsts: vec![dst],
        src,
        claim: None,
    }
}

/// The programs of a broadcast from rank 0, which the simulator does not check to be one.
fn schedules(programs: Vec<Vec<Step>>) -> Vec<Schedule> {
    let ranks = programs.len() as u32;
    let schedule = |(rank, steps)| Schedule {
        collective: Collective::Broadcast { root: 0 },
        ranks,
        rank,
        grid: Grid::Equal(1),
        scratch: vec![],
        receive: vec![1],
        steps,
    };
    (0..ranks).zip(programs).map(schedule).collect()
}

/// Sends the message from one rank to another: the steps of both.
fn message(from: Rank, to: Rank) -> [Vec<Step>; 2] {
    let sender = vec![
        copy(receive(to, from), slice(from, Buffer::Output)),
        Step::Signal { to, id: 0 },
    ];
    let receiver = vec![
        Step::Wait { from, id: 0 },
        copy(slice(to, Buffer::Output), receive(to, from)),
    ];
    [sender, receiver]
}

fn job(schedules: &[Schedule], bytes: u64) -> Job<'_> {
    Job {
        limits: None,
        ..Job::new(
            ProgramSource::Schedules(schedules),
            Collective::Broadcast { root: 0 },
            bytes,
            schedules.len() as u32,
        )
    }
}

fn simulated(machine: &Machine, schedules: &[Schedule], bytes: u64) -> SimulationResult {
    let options = SimulationOptions {
        trace: true,
        ..SimulationOptions::default()
    };
    simulate(machine, &job(schedules, bytes), &options).unwrap()
}

fn check(machine: &Machine, schedules: &[Schedule], bytes: u64, expected: &[f64]) {
    let finished = simulated(machine, schedules, bytes).finished;
    for (rank, (found, expected)) in finished.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() < 1e-12,
            "rank {rank} ends at {found}, not at {expected}: {finished:?}"
        );
    }
}

/// The receiver's time for a message: it detects, receives and copies it, and returns a credit.
fn taken(bytes: f64) -> f64 {
    1e-3 + (3e-3 + bytes * 2e-9) + (1e-7 + bytes * 3e-9) + 2e-3
}

#[test]
fn a_message_over_the_network() {
    let schedules = schedules(message(0, 1).into());
    let sent = 1e-7 + 2e-3 + SIZE * 1e-9;
    let expected = [sent, sent + SIZE / 1e8 + taken(SIZE)];
    check(&machine(&[1, 1]), &schedules, BYTES, &expected);
}

#[test]
fn small_messages_leave_when_sender_is_idle() {
    let [mut sender, receiver] = message(0, 1);
    // Copying takes this long.
    sender.push(copy(slice(0, Buffer::Output), slice(0, Buffer::Output)));
    let schedules = schedules(vec![sender, receiver]);
    let copied = 1e-7 + 1e-7 + 1000.0 * 3e-9;
    let sent = copied + 2e-3 + 1000.0 * 1e-9;
    let expected = [sent, sent + 1000.0 / 1e8 + taken(1000.0)];
    check(&machine(&[1, 1]), &schedules, 1000, &expected);
}

#[test]
fn a_message_through_memory() {
    let schedules = schedules(message(0, 1).into());
    // The receive buffer is another rank's for the sender, and written by another rank for the
    // receiver.
    let copied = 1e-7 + SIZE * (1e-9 + 2e-9 + 4e-9);
    let sent = copied + 1e-7;
    check(
        &machine(&[2]),
        &schedules,
        BYTES,
        &[sent, sent + 1e-6 + copied],
    );
}

/// Ranks 0 and 1 send to ranks 2 and 3.
fn two_messages() -> Vec<Schedule> {
    let ([a, c], [b, d]) = (message(0, 2), message(1, 3));
    schedules(vec![a, b, c, d])
}

#[test]
fn ranks_of_a_host_share_its_link() {
    let sent = 1e-7 + 2e-3 + SIZE * 1e-9;
    let alone = sent + SIZE / 1e8 + taken(SIZE);
    let shared = sent + 2.0 * SIZE / 1e8 + taken(SIZE);
    check(
        &machine(&[1, 1, 1, 1]),
        &two_messages(),
        BYTES,
        &[sent, sent, alone, alone],
    );
    check(
        &machine(&[2, 1, 1]),
        &two_messages(),
        BYTES,
        &[sent, sent, shared, shared],
    );
    check(
        &machine(&[1, 1, 2]),
        &two_messages(),
        BYTES,
        &[sent, sent, shared, shared],
    );
}

#[test]
fn bandwidth_left_by_one_flow_goes_to_another() {
    // Ranks 0 and 1 share a link; rank 1's message goes where rank 2's goes too.
    let ([a, d], [b, e], [c, f]) = (message(0, 3), message(1, 4), message(2, 5));
    let schedules = schedules(vec![a, b, c, d, e, f]);
    let sent = 1e-7 + 2e-3 + SIZE * 1e-9;
    let mut machine = machine(&[2, 1, 1, 2]);
    // The flow of rank 0 gets at most a quarter of the link, so its neighbour has half of the other
    // link, not more.
    let half = sent + 2.0 * SIZE / 1e8 + taken(SIZE);
    let finished = simulated(&machine, &schedules, BYTES).finished;
    assert!((finished[3] - half).abs() < 1e-12 && (finished[4] - half).abs() < 1e-12);
    machine.network.connection_bytes_per_s = Some(2.5e7);
    let quarter = sent + 4.0 * SIZE / 1e8 + taken(SIZE);
    let expected = [sent, sent, sent, quarter, quarter, quarter];
    check(&machine, &schedules, BYTES, &expected);
}

#[test]
fn idle_line_passes_its_saved_burst() {
    let schedules = schedules(message(0, 1).into());
    let sent = 1e-7 + 2e-3 + SIZE * 1e-9;
    let mut machine = machine(&[1, 1]);
    machine.network.burst_bytes = SIZE / 4.0;
    // At first as fast as can be.
    let fast = SIZE / 4.0 / (1e12 - 1e8);
    let slow = (SIZE - fast * 1e12) / 1e8;
    let finished = simulated(&machine, &schedules, BYTES).finished;
    let expected = sent + fast + slow + taken(SIZE);
    assert!(
        (finished[1] / expected - 1.0).abs() < 1e-6,
        "{finished:?}, not {expected}"
    );
    // With enough of it, the rate does not matter.
    machine.network.burst_bytes = 2.0 * SIZE;
    let finished = simulated(&machine, &schedules, BYTES).finished;
    let expected = sent + SIZE / 1e12 + taken(SIZE);
    assert!(
        (finished[1] / expected - 1.0).abs() < 1e-6,
        "{finished:?}, not {expected}"
    );
}

#[test]
fn a_line_saves_up_while_it_is_idle() {
    // To rank 1, and once it has answered, again.
    let [mut sender, mut receiver] = message(0, 1);
    receiver.push(Step::Signal { to: 0, id: 0 });
    sender.push(Step::Wait { from: 1, id: 0 });
    let [mut second, mut taking] = message(0, 1);
    for step in second.iter_mut().chain(&mut taking) {
        if let Step::Signal { id, .. } | Step::Wait { id, .. } = step {
            *id = 1;
        }
    }
    sender.extend(second);
    receiver.extend(taking);
    let schedules = schedules(vec![sender, receiver]);
    let time = |burst_bytes: f64| {
        let mut machine = machine(&[1, 1]);
        machine.network.burst_bytes = burst_bytes;
        simulated(&machine, &schedules, BYTES).seconds
    };
    // The pause between both messages is long enough to save up this burst.
    let (none, some) = (time(0.0), time(SIZE / 100.0));
    let gained = (none - some) / (SIZE / 100.0 / 1e8);
    assert!((gained - 2.0).abs() < 0.01, "{gained}");
}

#[test]
fn oversubscribed_switches_are_shared() {
    let sent = 1e-7 + 2e-3 + SIZE * 1e-9;
    let mut machine = machine(&[1, 1, 1, 1]);
    machine.switches = vec![Switch {
        hosts: 2,
        oversubscription: 4.0,
        latency_s: 5e-3,
    }];
    // Two links' worth through a half of one: each flow gets a quarter.
    let arrived = sent + 4.0 * SIZE / 1e8 + 5e-3 + taken(SIZE);
    check(
        &machine,
        &two_messages(),
        BYTES,
        &[sent, sent, arrived, arrived],
    );
}

/// Every rank copies the message within its own memory.
fn copies(ranks: u32) -> Vec<Schedule> {
    let steps = |rank| {
        vec![copy(
            slice(rank, Buffer::Output),
            slice(rank, Buffer::Input),
        )]
    };
    schedules((0..ranks).map(steps).collect())
}

#[test]
fn more_ranks_than_cores_take_turns() {
    let alone = 1e-7 + SIZE * 3e-9;
    let mut machine = machine(&[4, 1]);
    machine.host.cores = 2;
    let twice = 2.0 * alone;
    check(
        &machine,
        &copies(5),
        BYTES,
        &[twice, twice, twice, twice, alone],
    );
}

#[test]
fn ranks_share_the_memory_of_their_host() {
    let alone = 1e-7 + SIZE * 3e-9;
    let mut machine = machine(&[3, 1]);
    // A copy reads and writes; the memory carries the load of two of them.
    machine.host.memory_bytes_per_s = Some(2.0 * 2.0 * SIZE / alone);
    let shared = 1.5 * alone;
    check(
        &machine,
        &copies(4),
        BYTES,
        &[shared, shared, shared, alone],
    );
}

#[test]
fn stragglers_are_slow_and_late() {
    let alone = 1e-7 + SIZE * 3e-9;
    let mut machine = machine(&[2]);
    machine.stragglers = vec![Straggler {
        rank: 1,
        slowdown: 3.0,
        late_s: 0.25,
    }];
    check(&machine, &copies(2), BYTES, &[alone, 0.25 + 3.0 * alone]);
}

#[test]
fn variation_is_drawn_once_per_seed() {
    let mut machine = machine(&[8]);
    machine.variation.slowdown_max = 0.5;
    let times = |machine: &Machine| simulated(machine, &copies(8), BYTES).finished;
    let first = times(&machine);
    assert_eq!(first, times(&machine));
    let alone = 1e-7 + SIZE * 3e-9;
    assert!(first.iter().all(|time| (alone..1.5 * alone).contains(time)));
    machine.variation.seed = 1;
    assert_ne!(first, times(&machine));
}

#[test]
fn slot_is_reused_after_readers_credit() {
    let schedules = schedules(message(0, 1).into());
    let mut job = job(&schedules, 4 * BYTES);
    job.tile_bytes = Some(BYTES);
    let options = SimulationOptions {
        trace: true,
        ..SimulationOptions::default()
    };
    let simulated = simulate(&machine(&[1, 1]), &job, &options).unwrap();
    assert_eq!(simulated.tiles, 4);
    let find = |rank, what, tile| -> &TraceSpan {
        let found =
            |event: &&TraceSpan| (event.rank, event.what, event.tile) == (rank, what, Some(tile));
        simulated.trace.iter().find(found).unwrap()
    };
    // The second tile has a slot of its own, the third needs that of the first.
    let ended = find(1, SpanKind::Copy, 0).end;
    assert!(find(0, SpanKind::Send, 1).start < ended);
    let credit = ended + 2e-3 + 1e-3 + 3e-3;
    assert!((find(0, SpanKind::Send, 2).start - credit).abs() < 1e-12);
}

#[test]
fn limits_cut_the_message_as_the_executor_does() {
    let schedules = schedules(message(0, 1).into());
    let mut job = job(&schedules, BYTES);
    job.limits = Some(TileLimits::of_group(2));
    let simulated = simulate(&machine(&[1, 1]), &job, &SimulationOptions::default()).unwrap();
    // 256 KiB from each peer.
    assert_eq!(simulated.tiles, 4);
    assert_eq!(simulated.mode.to_string(), "full");
}

#[test]
fn explicit_schedules_run_like_their_algorithm() {
    let (ranks, collective) = (6, Collective::AllReduce);
    let machine = machine(&[2, 1, 3]);
    let topology = machine.topology();
    for name in ["ring", "two-shot", "multi-rail(slice-reduce, ring)"] {
        let selection = select("all-reduce", name).unwrap();
        let build = |rank| {
            selection.build(&ScheduleRequest {
                collective,
                ranks,
                rank,
                memory: MemoryClass::Ordinary,
                sizes: Sizes::Equal,
                topology: &topology,
                parts: &[],
            })
        };
        let schedules: Vec<Schedule> = (0..ranks).map(build).collect();
        let times = |source| {
            let job = Job::new(source, collective, 4 * BYTES, ranks);
            simulate(&machine, &job, &SimulationOptions::default()).unwrap()
        };
        assert_eq!(
            times(ProgramSource::Schedules(&schedules)),
            times(ProgramSource::Selection(&selection))
        );
    }
}

#[test]
fn wait_without_signal_is_reported() {
    let schedules = schedules(vec![vec![], vec![Step::Wait { from: 0, id: 0 }]]);
    let error = simulate(
        &machine(&[2]),
        &job(&schedules, BYTES),
        &SimulationOptions::default(),
    );
    let expected = SimulationError::Stuck {
        rank: 1,
        step: 0,
        tile: 0,
    };
    assert_eq!(error, Err(expected));
}

#[test]
fn invalid_figures_are_refused() {
    let all = schedules(message(0, 1).into());
    let refused = |machine: &Machine, job: &Job<'_>| {
        let error = simulate(machine, job, &SimulationOptions::default()).unwrap_err();
        error.to_string()
    };
    let mut slow = machine(&[1, 1]);
    slow.network.bytes_per_s = 0.0;
    let why = refused(&slow, &job(&all, BYTES));
    assert!(
        why.contains("network.bytes_per_s is 0; it must be more than 0"),
        "{why}"
    );
    let why = refused(&machine(&[1, 2]), &job(&all, BYTES));
    assert!(
        why.contains("all of the machine's 3 ranks are needed, in order; there are 2"),
        "{why}"
    );

    let reaching = schedules(vec![
        vec![copy(slice(0, Buffer::Output), slice(1, Buffer::Output))],
        vec![],
    ]);
    let why = refused(&machine(&[1, 1]), &job(&reaching, BYTES));
    assert!(
        why.contains("at step 0 rank 0 reaches into the memory of rank 1, which it does not map"),
        "{why}"
    );
}
