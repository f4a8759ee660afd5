//! The state of a rank's progress thread.

use std::collections::VecDeque;

use weft_schedule::Rank;

use crate::network::{MessagePath, Processor};
use crate::program::SimulatedProgram;

/// A position among all pairs of a representative and one of its peers.
pub(crate) type PairId = u32;
/// Names a message under way.
pub(crate) type MessageId = u32;

/// The position of the thread in a pass, as in the executor: it receives arrived messages, starts
/// tiles, advances every tile as far as possible, ends those that are done and sends queued
/// messages, until nothing is left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadPhase {
    Asleep,
    Receive,
    Tile(u32),
    Flush,
}

/// The activity that takes the thread's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadActivity {
    /// It has not made the call yet.
    BeforeCall,
    Idle,
    Receive(MessageId),
    Instruction,
    Send(MessageId),
}

/// One tile under way.
pub(crate) struct SimulatedTile {
    pub(crate) index: u64,
    pub(crate) next: u32,
    /// Since when it has been waiting for a signal. Only where a trace is wanted.
    pub(crate) waiting: Option<f64>,
}

/// A representative.
pub(crate) struct Thread {
    pub(crate) program: SimulatedProgram,
    /// Its pair with its first peer; the others follow.
    pub(crate) pairs: PairId,
    pub(crate) slowdown: f64,
    pub(crate) processor: Option<Processor>,
    pub(crate) phase: ThreadPhase,
    pub(crate) activity: ThreadActivity,
    /// Since when.
    pub(crate) since: f64,
    /// Whether anything was done in this pass.
    pub(crate) progressed: bool,
    pub(crate) runnable: bool,
    pub(crate) tiles: VecDeque<SimulatedTile>,
    /// The next tile to start.
    pub(crate) next: u64,
    /// How many receive targets are known to have room for the next tile.
    pub(crate) admitted: usize,
    /// How many tiles have ended.
    pub(crate) ended: u64,
    pub(crate) inbox: VecDeque<MessageId>,
    pub(crate) outbox: VecDeque<MessageId>,
    pub(crate) finished: Option<f64>,
}

impl Thread {
    pub(crate) fn new(program: SimulatedProgram, pairs: PairId, slowdown: f64) -> Self {
        Thread {
            program,
            pairs,
            slowdown,
            processor: None,
            phase: ThreadPhase::Asleep,
            activity: ThreadActivity::BeforeCall,
            since: 0.0,
            progressed: false,
            runnable: false,
            tiles: VecDeque::new(),
            next: 0,
            admitted: 0,
            ended: 0,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            finished: None,
        }
    }
}

/// A representative's state about one of its peers, and the connection to it.
pub(crate) struct RankPair {
    /// The owner.
    pub(crate) sender: u32,
    /// The peer.
    pub(crate) peer: Rank,
    /// The rank whose thread represents the peer.
    pub(crate) receiver: u32,
    /// The peer's turn among simultaneous messages.
    pub(crate) turn: u32,
    /// Which pair of that thread this one is seen as. `None` if the peer's program does not know
    /// this rank.
    pub(crate) mirror: Option<PairId>,
    pub(crate) way: MessagePath,
    /// How many tiles the peer has said to have ended.
    pub(crate) credit: u64,
    /// Bytes that were handed to the connection and have not left.
    pub(crate) held: f64,
    /// Messages behind the one that is leaving.
    pub(crate) queue: VecDeque<MessageId>,
    /// The message that is leaving.
    pub(crate) leaving: Option<MessageId>,
    /// The last message in the thread's outbox that goes here.
    pub(crate) queued: Option<MessageId>,
}

/// The content of a message besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    Nothing,
    /// The value of the flag for the tile's slot.
    Flag(u64),
    /// How many tiles the sender has ended.
    Credit(u64),
}

/// A message or signal from one rank to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedMessage {
    /// From where to where.
    pub(crate) pair: PairId,
    pub(crate) note: Note,
    /// Whether it is sent, and received, with the message before it.
    pub(crate) rides: bool,
    pub(crate) bytes: f64,
    pub(crate) start: f64,
    /// The tile and the step that it is for.
    pub(crate) origin: Option<(u64, u32)>,
}

/// The value of a flag once signal `id` of a tile was sent.
pub(crate) fn flag_value(tile: u64, id: u32) -> u64 {
    (tile << 32) | (u64::from(id) + 1)
}

/// The tile that a flag's value is for.
pub(crate) fn tile_of(value: u64) -> u64 {
    value >> 32
}
