//! Common parts of ring algorithms: the receive buffers between neighbours, and the circulation of
//! results around the ring.

use crate::patterns::builder::{Area, ProgramBuilder, block};

/// Up to this many ranks, every block of a tile has a place of its own in the receive buffer of its
/// way around a ring.
const ROOMY: u32 = 8;
/// The number of places that are acknowledged together where there are more ranks: an
/// acknowledgement costs a message.
const HALF: u32 = 4;
/// The number of places where there are more ranks. They are used in turn.
const PLACES: u32 = 2 * HALF;

/// Where the left neighbour's puts land, step by step.
///
/// With a place for every step, or for every block when the data received in a step was computed
/// from the data received a whole turn before, a place is known to be free when it is used again.
/// Otherwise the right neighbour reports when it has consumed one half of the places, while the
/// other half is filled. So its acknowledgement is there before it is waited for, and adds no step.
pub(crate) struct ReceiveWindow {
    places: Vec<Area>,
    steps: u32,
    acknowledged: bool,
}

impl ReceiveWindow {
    /// A window for this number of steps per tile.
    pub(crate) fn new(b: &mut ProgramBuilder, steps: u32) -> Self {
        let roomy = b.ranks() <= ROOMY;
        let places = if roomy { b.ranks() } else { PLACES };
        ReceiveWindow {
            places: (0..places.min(steps))
                .map(|_| b.add_receive_buffer(1))
                .collect(),
            steps,
            acknowledged: !roomy,
        }
    }

    /// Where the put of a step lands.
    pub(crate) fn place(&self, step: u32) -> Area {
        self.places[step as usize % self.places.len()]
    }

    /// Ensures that the right neighbour has consumed the former content of the place of a step's
    /// put. For every step, in order.
    pub(crate) fn reserve(&self, b: &mut ProgramBuilder, step: u32) {
        if self.acknowledged && step >= PLACES && step.is_multiple_of(HALF) {
            b.wait(b.after(1));
        }
    }

    /// Notifies the left neighbour that the puts up to this step are consumed, if it waits for
    /// that. For every step, in order.
    pub(crate) fn release(&self, b: &mut ProgramBuilder, step: u32) {
        let next = step + 1;
        if self.acknowledged && next.is_multiple_of(HALF) && next + HALF < self.steps {
            b.signal(b.before(1));
        }
    }
}

/// Brings every rank's block to all ranks, once each rank has sent its own to the next one.
///
/// In step k rank r takes block r - 1 - k from rank r - 1 and forwards it, unless it has been all
/// the way round. Blocks are put into `window`, of which these are the last steps, and each is
/// forwarded and copied out in one pass. A block that arrives in the output itself is forwarded
/// from there.
pub(crate) fn pass_around(b: &mut ProgramBuilder, window: Option<&ReceiveWindow>) {
    let (left, right) = (b.before(1), b.after(1));
    let turn = b.ranks() - 1;
    for step in 0..turn {
        let received = block(b.before(step + 1));
        let landed = window.map(|window| (window, window.steps - turn + step));
        let forwards = step + 1 < turn;
        b.wait(left);
        let mut dsts = Vec::new();
        if forwards {
            if let Some((window, step)) = landed {
                window.reserve(b, step + 1);
            }
            let place = landed.map(|(window, step)| window.place(step + 1));
            dsts.push(b.destination(right, place, received.clone()));
        }
        let mut src = b.output(received.clone());
        if let Some((window, step)) = landed {
            dsts.push(src);
            src = b.inbox(left, window.place(step), received);
        }
        if !dsts.is_empty() {
            b.copy(dsts, src);
        }
        if forwards {
            b.signal(right);
        }
        if let Some((window, step)) = landed {
            window.release(b, step);
        }
    }
}
