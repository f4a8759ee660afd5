//! Tiles of an operation in its lane, several at a time.
//!
//! Slots are in the lanes' part of channels and scratch memory. A tile starts when its slot is free
//! here and, by credits, at the peers that it writes to.

use std::sync::atomic::Ordering;

use weft_call::{Call, Op};
use weft_channel::Connections;
use weft_memory::access;
use weft_program::Program;
use weft_schedule::Rank;
use weft_transport::{LinkError, Segment, Signal};

use super::super::arrivals::Arrivals;
use super::super::budget::Budget;
use super::super::interpret::{Blocked, GroupFailure};
use super::super::operation::{Lane, Operation, Running, Tile};
use super::super::puts::Puts;
use super::driver::{TileDriver, stream_of};
use super::{claims, strips};

/// Advances the tiles of an operation as far as possible. True if anything was done.
pub(crate) fn advance(
    operation: &mut Operation,
    lane: &mut Lane,
    connections: &mut Connections,
    pool: &Segment,
    budget: &mut Budget,
) -> Result<bool, GroupFailure> {
    let Some(mut running) = operation.running.take() else {
        return Ok(false);
    };
    let result = advance_tiles(operation, lane, &mut running, connections, pool, budget);
    operation.running = Some(running);
    result
}

fn advance_tiles(
    operation: &mut Operation,
    lane: &mut Lane,
    running: &mut Running,
    connections: &mut Connections,
    pool: &Segment,
    budget: &mut Budget,
) -> Result<bool, GroupFailure> {
    let mut progressed = start_tiles(operation, running, connections, pool)?;
    let mut tiles = std::mem::take(&mut running.tiles);
    let mut result = Ok(());
    for tile in tiles.iter_mut().filter(|tile| !tile.done) {
        let mut driver = TileDriver::new(operation, running, connections, pool, budget, tile);
        match driver.advance() {
            Ok(moved) => progressed |= moved,
            Err(failure) => {
                result = Err(failure);
                break;
            }
        }
    }
    running.tiles = tiles;
    result?;
    let ended = running.tiles.iter().take_while(|tile| tile.done).count();
    if ended > 0 {
        for tile in running.tiles.drain(..ended) {
            running.puts.append(tile.puts);
        }
        strips::deregister_behind(running);
        lane.ended += ended as u64;
        let ended = (operation.lane(), lane.ended);
        give_credit(connections, ended, operation.is_urgent(), running)?;
    }
    if running.next == running.geometry.tiles && running.tiles.is_empty() {
        operation.waiting = running.puts.before_last_end(connections)?;
    } else {
        running.puts.shorten(connections)?;
    }
    Ok(progressed)
}

/// Starts the tiles of an operation whose slots are free. True if there was one.
fn start_tiles(
    operation: &mut Operation,
    running: &mut Running,
    connections: &mut Connections,
    pool: &Segment,
) -> Result<bool, GroupFailure> {
    let mut started = false;
    let lane = operation.lane();
    let in_flight = running.plan.tiles_in_flight;
    while running.tiles.len() < in_flight && running.next < running.geometry.tiles {
        let g = running.first + running.next;
        if let Some(blocked) = cannot_start(connections, lane, g, running, pool) {
            if connections.departed[blocked.rank() as usize] {
                return Err(GroupFailure::Link(blocked.rank(), LinkError::Left));
            }
            if running.tiles.is_empty() {
                operation.waiting = Some(blocked);
            }
            break;
        }
        let slot = connections.layout.slot_of(g);
        for receiver in &running.plan.program.receivers {
            if let Some(channel) = &mut connections.channels[*receiver as usize] {
                channel.landed[lane][slot] = g + 1;
            }
        }
        strips::register_ahead(operation.sequence, running, connections);
        copy_input(&operation.call, connections.rank, running);
        claims::open(connections, lane, g, &running.plan.program, pool);
        running.tiles.push(Tile {
            index: running.next,
            g,
            next: 0,
            puts: Puts::default(),
            arrivals: Arrivals::default(),
            streams: choose_streams(operation, connections, &running.plan.program),
            shown: None,
            awaited: None,
            blocked: None,
            done: false,
        });
        running.next += 1;
        started = true;
        operation.waiting = None;
    }
    Ok(started)
}

/// Returns what blocks the start of tile `g`, if anything.
fn cannot_start(
    connections: &Connections,
    lane: usize,
    g: u64,
    running: &Running,
    pool: &Segment,
) -> Option<Blocked> {
    let program = &running.plan.program;
    let absent = |rank: &&u32| !connections.shares(**rank, running.parts);
    if let Some(from) = program.neighbours.iter().find(absent) {
        return Some(Blocked::Grant { from: *from });
    }
    let slot = connections.layout.slot_of(g);
    let occupied = |rank: &&u32| {
        connections.channels[**rank as usize]
            .as_ref()
            .is_some_and(|channel| {
                let word = pool.word(channel.words() + connections.layout.credit(lane));
                channel.landed[lane][slot] > word.load(Ordering::Acquire)
            })
    };
    let occupied = program.receivers.iter().find(occupied);
    occupied.map(|from| Blocked::Credit { from: *from })
}

/// Reports the number of ended tiles to the ranks that write to this rank's receive buffers. After
/// the last tile this may be delayed, and sent together with data of the next operation.
fn give_credit(
    connections: &Connections,
    (lane, ended): (usize, u64),
    urgent: bool,
    running: &Running,
) -> Result<(), GroupFailure> {
    let more = running.next < running.geometry.tiles;
    for sender in &running.plan.program.senders {
        let rank = *sender as usize;
        let (Some(link), Some(remote)) = (&connections.links[rank], connections.remote(*sender))
        else {
            continue;
        };
        let signal = Signal {
            offset: remote.words() + connections.layout.credit(lane),
            value: ended,
        };
        let stream = stream_of(link.as_ref(), urgent);
        let given = match more {
            true => stream.signal(signal),
            false => stream.signal_late(signal),
        };
        match given {
            // A peer that has left, perhaps since its link was last read, needs no credit.
            Ok(()) | Err(LinkError::Left) => {}
            Err(_) if connections.departed[rank] => {}
            Err(error) => return Err(GroupFailure::Link(*sender, error)),
        }
    }
    Ok(())
}

/// Chooses the emptiest streams to the ranks that a tile writes to, where links have several.
fn choose_streams(
    operation: &Operation,
    connections: &Connections,
    program: &Program,
) -> Vec<(Rank, usize)> {
    let emptiest = |rank: &Rank| {
        let link = connections.links[*rank as usize].as_ref()?;
        Some((*rank, link.emptiest_stream()))
    };
    match operation.is_urgent() {
        true => Vec::new(),
        false => (program.receivers.iter().filter_map(emptiest))
            .filter(|(_, stream)| *stream > 0)
            .collect(),
    }
}

/// Copies the next tile of the caller's input into `Output`, for collectives that work there.
fn copy_input(call: &Call, rank: u32, running: &Running) {
    let factor = match call.op {
        Op::PremulSum(factor) if call.collective.reduces() => Some(factor),
        _ => None,
    };
    let (input, output) = (running.bases.input, running.bases.output);
    if !call.copies_input(rank) || (factor.is_none() && std::ptr::eq(input, output)) {
        return;
    }
    let (geometry, shape) = (&running.geometry, &running.plan.program.shape);
    let size = geometry.element_bytes();
    for chunk in 0..shape.grid.chunks() {
        let (start, end) = geometry.chunk(shape, chunk, running.next);
        let elements = (end - start) as usize;
        let dst = output.wrapping_add((start * size) as usize);
        let src = input.wrapping_add((start * size) as usize);
        match factor {
            // SAFETY: see [Note: Memory access].
            Some(factor) => unsafe { access::scale(call.dtype, dst, src, elements, factor) },
            // SAFETY: as above.
            None => unsafe { access::copy(&[dst], src, (end - start) * size) },
        }
    }
}
