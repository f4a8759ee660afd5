//! Simulator: models of machines, and the pricing and simulation of schedules on them.
//!
//! A [`Machine`] holds speeds, a [`Job`] the call. [`closed_form`] computes the seconds by a
//! formula; [`simulate`] simulates every rank's executor event by event. Nothing here does I/O or
//! knows the time.
//!
//! ```
//! use weft_algorithms::select;
//! use weft_schedule::Collective;
//! use weft_simulate::{Host, Job, Machine, NetworkLink, ProgramSource, SimulationOptions};
//! use weft_simulate::{closed_form, simulate};
//!
//! let machine = Machine::even(64, 8, Host::default(), NetworkLink::default())?;
//! let ring = select("all-reduce", "multi-rail(slice-reduce, ring)")?;
//! let source = ProgramSource::Selection(&ring);
//! let job = Job::new(source, Collective::AllReduce, 4 << 20, machine.ranks());
//! let simulated = simulate(&machine, &job, &SimulationOptions::default())?;
//! assert_eq!(simulated.mode.to_string(), "representatives (1)");
//! assert!(closed_form(&machine, &job)? / simulated.seconds < 1.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The model
//!
//! *Messages* are those of LogGP with an overhead per byte: Alexandrov, Ionescu, Schauser,
//! Scheiman, "LogGP: incorporating long messages into the LogP model", 1995; Hoefler, Schneider,
//! Lumsdaine, "LogGOPSim", 2010. A message of n bytes keeps the sender's thread busy for `o_s + n
//! O_s`, its connection for `n / rate`, is seen `L` later, and keeps the receiver's thread busy for
//! `o_r + n O_r`. A connection sends one message after the other and takes more until its buffer is
//! full; the thread does not wait for them. Small messages are sent at the end of the thread's
//! pass, those to one peer as one message, as over TCP.
//!
//! *Rates* are max-min fair: the rates of hosts in both directions, of switches upwards and
//! downwards, and of connections bound all flows together; no flow's rate can be raised without
//! lowering that of another that has no more (Bertsekas and Gallager, "Data Networks", 1992,
//! 6.5.2). Rates change only when a flow begins or ends, and only those that this can reach are
//! computed anew. SimGrid (Casanova, Giersch, Legrand, Quinson, Suter, 2014) models networks in the
//! same way; it simulates programs, while here the programs are schedules, whose symmetry can be
//! used.
//!
//! *Hosts.* Ranks of one host map each other's memory, unless it is said to have a loopback link. A
//! put is a copy then, and a signal arrives after [`Host::signal_s`]. Copies and reductions take
//! time per byte read, per byte written, and per byte read from or written to another rank's
//! memory. Threads share the cores where there are fewer, and all share the memory's bandwidth,
//! both max-min fairly.
//!
//! *Ranks* run as the executor does: one thread per rank receives arrived messages, starts tiles as
//! slots and credits allow, advances every tile in order as far as possible, ends those that are
//! done, sends queued messages, and begins again. Tiles are cut by the executor's own function
//! ([`weft_schedule::TileLimits`]). Each rank may be slower at random ([`Variation`]) or as
//! configured ([`Straggler`]).
//!
//! *Not modelled:* sleeping and waking beyond [`Host::signal_s`], lost packets and congestion
//! control, caches (a byte costs the same wherever it is), the bound on the bytes of one pass,
//! several operations at once. A tile's share of a chunk is real-valued: it differs by up to one
//! element per chunk from the executor's.
//!
//! # Large groups
//!
//! Where ranks are symmetric, only some are simulated, and represent all
//! ([`Mode::Representatives`]): those of one host, or of the hosts below one switch that matters,
//! and one of the ranks of a host that carry a slice each. `orbits.rs` explains why that is the
//! same simulation. The algorithm must have declared its symmetry, hosts must have the same number
//! of ranks, and no rank may be slower than others. The tests compare it with the full simulation
//! for every algorithm that declares any. The two agree up to the last digits; where many tiles
//! contend for links for long, contention makes much of these, as of any difference. Everything
//! else, such as trees, is simulated in full: programs are compiled rank by rank into some 32 bytes
//! per instruction. No tile is left out and nothing is extrapolated, so time grows with the number
//! of tiles.
//!
//! Programs with a step per rank on ranks that are not symmetric do not fit above some 6,000 ranks,
//! and are refused after sampling some of the programs: broadcast's `scatter-all-gather`, in which
//! blocks start around the ring when the tree has brought them, and reduce's `slice-reduce`.
//! [`SimulationOptions::work_max`] bounds the steps of a simulation: 50 million take about a minute
//! of a core.
//!
//! A host's link through which everything goes to one other link, as in `gather-to-root`, bounds
//! nothing and is left out: all messages to a root then share one path. Where hosts talk to several
//! hosts through which many others talk, as with some but few servers, every message that begins or
//! ends changes the rates of all others on its way, one by one; these changes count as work too.
//!
//! `make simulate-large` simulates every algorithm on 10,000 ranks and every composed choice on
//! 100,000, 16 tiles each, and prints a table of times and memory (recorded in
//! `benches/runs/2026-11-22-simulate-large`). All that is not refused takes about a minute of one
//! core at most and less than 1 GiB; `parameter-server` with a number of servers is refused from
//! some hundred ranks on.
#![forbid(unsafe_code)]

mod advance;
mod closed_form;
mod error;
mod event_queue;
mod job;
mod machine;
mod messages;
mod network;
mod orbits;
mod preparation;
mod program;
mod share;
mod simulation;
mod thread;
mod token_buckets;
mod trace;
mod tracing;

pub use closed_form::closed_form;
pub use error::SimulationError;
pub use job::{Job, ProgramSource};
pub use machine::{Host, Machine, NetworkLink, Straggler, Switch, Variation};
pub use simulation::{Mode, SimulationOptions, SimulationResult, SimulationSymmetry, simulate};
pub use trace::{SpanKind, TraceSpan};
