//! The half that ring algorithms share: results travel around the ring.

use crate::builder::{Area, Builder, block};

/// Brings every rank's block to all ranks, once each rank has sent its own to the next one.
///
/// In step k rank r takes block r - 1 - k from rank r - 1 and passes it on, unless it has come all the way round.
/// `staging` says for each step where the block lands; there it is forwarded and copied out in one pass. A block that
/// arrives in the output itself is forwarded from there.
pub(crate) fn pass_around(b: &mut Builder, staging: &[Option<Area>]) {
    let (left, right) = (b.before(1), b.after(1));
    for (step, landed) in staging.iter().enumerate() {
        let received = block(b.before(step as u32 + 1));
        b.wait(left);
        let mut dsts = Vec::new();
        if let Some(&next) = staging.get(step + 1) {
            dsts.push(b.destination(right, next, received.clone()));
        }
        let forwarding = !dsts.is_empty();
        let mut src = b.output(received.clone());
        if let &Some(area) = landed {
            dsts.push(src);
            src = b.inbox(left, area, received);
        }
        if !dsts.is_empty() {
            b.copy(dsts, src);
        }
        if forwarding {
            b.signal(right);
        }
    }
}
