//! Tracing of the stages of tiles.

use weft_flight::StageSpan;

use super::Group;

impl Group {
    /// Begins or ends to record what is done with the tiles of collectives, in all groups of this
    /// endpoint. It costs two readings of a clock and a lock for each stage of each tile.
    pub fn trace_stages(&self, tracing: bool) {
        self.engine.endpoint().stages().set(tracing);
    }

    /// The stages that were recorded since this was last asked, in the order of their ends.
    pub fn take_stages(&self) -> Vec<StageSpan> {
        self.engine.endpoint().stages().take()
    }
}
