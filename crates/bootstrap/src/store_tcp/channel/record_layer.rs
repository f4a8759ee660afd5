//! A record layer: the bytes on the wire for what the ends of a store connection say.

use super::super::protocol::StoreFailure;

/// The name and version of the protocol.
pub(super) const PROTOCOL: &str = "weft store 2";
/// The most bytes of the conversation in one record.
pub(crate) const CHUNK_BYTES_MAX: usize = 32 << 10;

/// What travels over a connection, in place of what its ends say.
pub(super) trait RecordLayer: Send {
    /// Takes what came over the wire: appends what the other end says to `plain`, and what is to be
    /// sent at once to `wire`, after an error as well.
    fn open(
        &mut self,
        came: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), StoreFailure>;

    /// Appends a part of the conversation, at most [`CHUNK_BYTES_MAX`], as it goes over the wire.
    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>);

    /// Whether the handshake has come so far that this end may speak.
    fn is_open(&self) -> bool;

    /// Whether the other end has shown that it may take part.
    fn is_proven(&self) -> bool;

    /// Bytes that are kept until a record, or the handshake, is complete.
    fn held(&self) -> usize;
}
