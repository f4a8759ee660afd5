//! A record layer: the form of messages on the wire of a store connection.

use super::super::protocol::StoreFailure;

/// The name and version of the protocol.
pub(super) const PROTOCOL: &str = "weft store 3";
/// The most message bytes in one record.
pub(crate) const CHUNK_BYTES_MAX: usize = 32 << 10;

/// The conversion between messages and bytes on the wire.
pub(super) trait RecordLayer: Send {
    /// Processes bytes from the wire: appends message bytes to `plain`, and bytes that must be sent
    /// immediately to `wire`, after an error as well.
    fn open(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), StoreFailure>;

    /// Appends a part of a message, at most [`CHUNK_BYTES_MAX`], in its form on the wire.
    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>);

    /// Whether the handshake has advanced enough that this end may send messages.
    fn is_open(&self) -> bool;

    /// Whether the other end has proven that it may take part.
    fn is_proven(&self) -> bool;

    /// Bytes that are kept until a record, or the handshake, is complete.
    fn held(&self) -> usize;
}
