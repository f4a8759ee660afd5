//! Actions of the simulated threads.

use crate::event_queue::Event;
use crate::program::{Action, NO_SIGNAL, SimulatedInstruction};
use crate::simulation::Simulation;
use crate::thread::{
    Note, SimulatedMessage, SimulatedTile, ThreadActivity, ThreadPhase, flag_value,
};
use crate::trace::SpanKind;

/// Puts of up to this many bytes are copied and sent at the end of the thread's pass, as in the TCP
/// transport.
const COPIED_BYTES_MAX: f64 = 2048.0;

/// The outcome of an instruction.
enum InstructionOutcome {
    /// It is done.
    Done,
    /// It takes the thread's time.
    Busy,
    /// It cannot be executed yet.
    Blocked,
}

impl Simulation<'_> {
    /// Takes a thread as far as it goes without time passing.
    pub(crate) fn advance(&mut self, rank: u32) {
        let thread = &mut self.threads[rank as usize];
        thread.runnable = false;
        if thread.activity != ThreadActivity::Idle {
            return;
        }
        if thread.phase == ThreadPhase::Asleep {
            thread.phase = ThreadPhase::Receive;
            thread.progressed = false;
        }
        loop {
            let busy = match self.threads[rank as usize].phase {
                ThreadPhase::Asleep => return,
                ThreadPhase::Receive => self.receive(rank),
                ThreadPhase::Tile(position) => self.tile(rank, position),
                ThreadPhase::Flush => self.flush(rank),
            };
            if busy {
                return;
            }
        }
    }

    /// Receives the next message that has arrived; when there is none, continues with the tiles.
    fn receive(&mut self, rank: u32) -> bool {
        let thread = &mut self.threads[rank as usize];
        if let Some(message) = thread.inbox.pop_front() {
            thread.progressed = true;
            let SimulatedMessage {
                pair, bytes, rides, ..
            } = self.messages[message as usize];
            let link = self.network.link(self.is_loopback(pair));
            let overhead = if rides { 0.0 } else { link.receive_overhead_s };
            let seconds = overhead + bytes * link.receive_s_per_byte;
            self.work(rank, ThreadActivity::Receive(message), seconds, 0.0);
            return true;
        }
        self.start_tiles(rank);
        self.threads[rank as usize].phase = ThreadPhase::Tile(0);
        false
    }

    fn start_tiles(&mut self, rank: u32) {
        let thread = &mut self.threads[rank as usize];
        while thread.tiles.len() < self.tiles_in_flight && thread.next < self.tiles {
            let targets = &thread.program.receive_targets;
            // The tile that used the slot before must have ended there.
            let needed = (thread.next + 1).saturating_sub(self.slots);
            while let Some(target) = targets.get(thread.admitted)
                && self.pairs[(thread.pairs + target) as usize].credit >= needed
            {
                thread.admitted += 1;
            }
            if thread.admitted < targets.len() {
                return;
            }
            thread.admitted = 0;
            thread.tiles.push_back(SimulatedTile {
                index: thread.next,
                next: 0,
                waiting: None,
            });
            thread.next += 1;
            thread.progressed = true;
        }
    }

    /// Takes a tile as far as it goes; behind the last, ends those that are done.
    fn tile(&mut self, rank: u32, position: u32) -> bool {
        let thread = &mut self.threads[rank as usize];
        let Some(tile) = thread.tiles.get(position as usize) else {
            self.end_tiles(rank);
            return false;
        };
        let Some(&instruction) = thread.program.instructions.get(tile.next as usize) else {
            thread.phase = ThreadPhase::Tile(position + 1);
            return false;
        };
        match self.execute(rank, position, instruction) {
            InstructionOutcome::Busy => return true,
            InstructionOutcome::Done => self.pass_instruction(rank),
            InstructionOutcome::Blocked => {
                self.threads[rank as usize].phase = ThreadPhase::Tile(position + 1)
            }
        }
        false
    }

    fn execute(
        &mut self,
        rank: u32,
        position: u32,
        instruction: SimulatedInstruction,
    ) -> InstructionOutcome {
        let thread = &mut self.threads[rank as usize];
        let step_s = self.machine.host.step_s;
        match instruction.action {
            Action::Work { seconds, traffic } => {
                self.work(rank, ThreadActivity::Instruction, seconds, traffic);
                InstructionOutcome::Busy
            }
            Action::Wait { from, id } => {
                let tile = &mut thread.tiles[position as usize];
                let slot = (tile.index % self.slots) as usize;
                let pair = (thread.pairs + from) as usize;
                let flag = self.flags[pair * self.slots as usize + slot];
                if flag >= flag_value(tile.index, id) {
                    let (since, tile) = (tile.waiting.take(), tile.index);
                    if let Some(start) = since {
                        self.trace_wait(rank, pair, instruction.step, start, tile);
                    }
                    return InstructionOutcome::Done;
                }
                if self.trace.is_some() && tile.waiting.is_none() {
                    tile.waiting = Some(self.now);
                }
                InstructionOutcome::Blocked
            }
            Action::Signal { .. } => {
                self.work(rank, ThreadActivity::Instruction, step_s, 0.0);
                InstructionOutcome::Busy
            }
            Action::Put { to, bytes, .. } => {
                let pair = thread.pairs + to;
                let mut seconds = step_s;
                if bytes > COPIED_BYTES_MAX {
                    let link = self.network.link(self.is_loopback(pair));
                    let held = self.pairs[pair as usize].held;
                    if held > 0.0 && held + bytes > link.buffer_bytes as f64 {
                        return InstructionOutcome::Blocked;
                    }
                    seconds += link.send_overhead_s + bytes * link.send_s_per_byte;
                }
                self.work(rank, ThreadActivity::Instruction, seconds, 0.0);
                InstructionOutcome::Busy
            }
        }
    }

    /// The current tile's next instruction has taken its time.
    fn instruction_ended(&mut self, rank: u32) {
        let thread = &self.threads[rank as usize];
        let ThreadPhase::Tile(position) = thread.phase else {
            unreachable!("instructions are executed in this phase only");
        };
        let tile = &thread.tiles[position as usize];
        let SimulatedInstruction { action, step } = thread.program.instructions[tile.next as usize];
        let (index, pairs) = (tile.index, thread.pairs);
        let origin = Some((index, step));
        match action {
            Action::Work { .. } => self.trace_work(rank, index, step),
            Action::Wait { .. } => {}
            Action::Signal { to, id } => {
                let note = Note::Flag(flag_value(index, id));
                self.notify(rank, pairs + to, note, origin);
            }
            Action::Put { to, signal, bytes } => {
                let note = match signal {
                    NO_SIGNAL => Note::Nothing,
                    id => Note::Flag(flag_value(index, id)),
                };
                if bytes > COPIED_BYTES_MAX {
                    self.trace_thread(rank, SpanKind::Send, pairs + to, origin);
                    self.send_queued(rank, pairs + to);
                    let message = self.message(pairs + to, note, bytes, origin);
                    self.hand_over(message);
                } else {
                    self.queue(rank, pairs + to, note, bytes, origin);
                }
            }
        }
        self.pass_instruction(rank);
    }

    fn pass_instruction(&mut self, rank: u32) {
        let thread = &mut self.threads[rank as usize];
        if let ThreadPhase::Tile(position) = thread.phase {
            thread.tiles[position as usize].next += 1;
            thread.progressed = true;
        }
    }

    /// Ends the tiles that are done, in order, and notifies the ranks that write to this rank's
    /// receive buffer.
    fn end_tiles(&mut self, rank: u32) {
        let thread = &mut self.threads[rank as usize];
        let before = thread.ended;
        let length = thread.program.instructions.len() as u32;
        while thread.tiles.front().is_some_and(|tile| tile.next == length) {
            thread.tiles.pop_front();
            thread.ended += 1;
        }
        thread.phase = ThreadPhase::Flush;
        let ended = thread.ended;
        if ended == before {
            return;
        }
        thread.progressed = true;
        for index in 0..self.threads[rank as usize].program.receive_sources.len() {
            let thread = &self.threads[rank as usize];
            let pair = thread.pairs + thread.program.receive_sources[index];
            self.notify(rank, pair, Note::Credit(ended), None);
        }
    }

    /// Sends the next queued message. When there is none, begins another pass if anything was done
    /// in this one, or sleeps.
    fn flush(&mut self, rank: u32) -> bool {
        let thread = &mut self.threads[rank as usize];
        if let Some(message) = thread.outbox.pop_front() {
            let SimulatedMessage {
                pair, bytes, rides, ..
            } = self.messages[message as usize];
            let link = self.network.link(self.is_loopback(pair));
            let overhead = if rides { 0.0 } else { link.send_overhead_s };
            let seconds = overhead + bytes * link.send_s_per_byte;
            self.work(rank, ThreadActivity::Send(message), seconds, 0.0);
            return true;
        }
        // The caller waits until the last credits have been sent.
        if thread.ended == self.tiles && thread.finished.is_none() {
            thread.finished = Some(self.now);
        }
        let again = std::mem::take(&mut thread.progressed) || !thread.inbox.is_empty();
        thread.phase = if again {
            ThreadPhase::Receive
        } else {
            ThreadPhase::Asleep
        };
        false
    }

    /// Keeps the thread busy for this many seconds, or more if it must share a resource.
    fn work(&mut self, rank: u32, activity: ThreadActivity, seconds: f64, traffic: f64) {
        let thread = &mut self.threads[rank as usize];
        thread.activity = activity;
        thread.since = self.now;
        let seconds = seconds * thread.slowdown;
        let owner = self.pairs.len() as u32 + rank;
        match thread.processor {
            Some(processor) if seconds > 0.0 && (processor.cores || traffic > 0.0) => {
                let shares = &mut self.network.shares;
                if let Some(place) = processor.memory {
                    shares.set_weight(processor.bundle, place, traffic / seconds);
                }
                shares.add_flow(self.now, processor.bundle, seconds, owner);
            }
            _ => self.events.note(self.now + seconds, Event::Thread(rank)),
        }
    }

    /// A thread has finished its activity, or begins.
    pub(crate) fn work_ended(&mut self, rank: u32) {
        let activity = std::mem::replace(
            &mut self.threads[rank as usize].activity,
            ThreadActivity::Idle,
        );
        match activity {
            ThreadActivity::BeforeCall | ThreadActivity::Idle => {}
            ThreadActivity::Instruction => self.instruction_ended(rank),
            ThreadActivity::Receive(message) => {
                let SimulatedMessage { pair, origin, .. } = self.messages[message as usize];
                if let Some(mirror) = self.pairs[pair as usize].mirror {
                    self.trace_thread(rank, SpanKind::Receive, mirror, origin);
                }
                self.take_note(message);
            }
            ThreadActivity::Send(message) => {
                let SimulatedMessage { pair, origin, .. } = self.messages[message as usize];
                self.trace_thread(rank, SpanKind::Send, pair, origin);
                let last = &mut self.pairs[pair as usize].queued;
                if *last == Some(message) {
                    *last = None;
                }
                self.hand_over(message);
            }
        }
        self.wake(rank);
    }
}
