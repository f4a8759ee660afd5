//! Service of other ranks' requests on this rank's symmetric memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weft_channel::{CellOp, CellUpdate, OneSidedWord};
use weft_memory::{OwnPart, Pieces, access};
use weft_transport::{LinkError, Segment};

use super::cell::{apply, cell_of};
use super::peer::PeerTraffic;
use super::serve_queue::{FRAGMENT_BYTES, Read, violation};

/// Executes a request of a peer. Writes nothing unless the whole range is in this rank's part. A
/// request for a part that was freed here is late, and no violation of the protocol.
pub(super) fn serve(
    group: u64,
    (pieces, rank): (&Pieces, u32),
    peer: &mut PeerTraffic,
    word: OneSidedWord,
    payload: &[u8],
) -> Result<(), LinkError> {
    match word {
        OneSidedWord::Put {
            piece,
            offset,
            update,
        } => {
            if let Some(part) = own_part(pieces, piece, rank)? {
                let bytes = payload.len() as u64;
                check(&part, offset, bytes)?;
                let update = update.map(|update| checked(&part, update)).transpose()?;
                let place = part.base().as_ptr().wrapping_add(offset as usize);
                // SAFETY: the range was checked above.
                unsafe { access::fill(place, payload) };
                if let Some((cell, op)) = update {
                    apply(cell, op);
                }
            }
        }
        OneSidedWord::Atomic { piece, update, id } => {
            let answer = match own_part(pieces, piece, rank)? {
                Some(part) => {
                    let (cell, op) = checked(&part, update)?;
                    let value = apply(cell, op);
                    OneSidedWord::Before { id, value }
                }
                None => OneSidedWord::Freed { id },
            };
            peer.send(group, answer, &[]);
        }
        OneSidedWord::Get {
            piece,
            offset,
            bytes,
            id,
        } => match own_part(pieces, piece, rank)? {
            Some(part) => {
                check(&part, offset, bytes)?;
                if bytes > FRAGMENT_BYTES {
                    return Err(violation("a read longer than a fragment"));
                }
                peer.serve.add(Read {
                    part,
                    offset,
                    bytes,
                    id,
                })?;
            }
            None => peer.send(group, OneSidedWord::Freed { id }, &[]),
        },
        OneSidedWord::Flush { id } => peer.send(group, OneSidedWord::Flushed { id }, &[]),
        _ => return Err(violation("an answer without a request")),
    }
    Ok(())
}

fn own_part(pieces: &Pieces, piece: u64, rank: u32) -> Result<Option<Arc<Segment>>, LinkError> {
    match pieces.own_part(piece, rank) {
        OwnPart::Unknown => Err(violation("a piece of memory that does not exist")),
        OwnPart::Freed => Ok(None),
        OwnPart::Present(part) => Ok(Some(part)),
    }
}

fn check(part: &Segment, offset: u64, bytes: u64) -> Result<(), LinkError> {
    let end = offset.checked_add(bytes);
    match end.is_some_and(|end| part.contains(&(offset..end))) {
        true => Ok(()),
        false => Err(violation("a range outside of the memory")),
    }
}

fn checked(part: &Segment, update: CellUpdate) -> Result<(&AtomicU64, CellOp), LinkError> {
    let cell =
        cell_of(part, update.offset).ok_or_else(|| violation("an offset that is not a cell"))?;
    Ok((cell, update.op))
}
