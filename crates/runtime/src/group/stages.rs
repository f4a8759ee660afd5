//! Tracing of the stages of tiles.

use weft_flight::StageSpan;

use super::Group;

impl Group {
    /// Starts or stops recording the stages of collectives' tiles, in all groups of this endpoint.
    /// Each stage of each tile costs two readings of a clock and a lock.
    pub fn trace_stages(&self, tracing: bool) {
        self.engine.endpoint().stages().set(tracing);
    }

    /// The stages that were recorded since the last call, in the order of their ends.
    pub fn take_stages(&self) -> Vec<StageSpan> {
        self.engine.endpoint().stages().take()
    }
}
