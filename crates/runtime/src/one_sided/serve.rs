//! Service of other ranks' requests on this rank's symmetric memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weft_channel::{CellOp, CellUpdate, OneSidedWord};
use weft_memory::{OwnPart, Pieces, access};
use weft_transport::{LinkError, Segment};

use super::cell::{apply, cell_of};
use super::peer::PeerTraffic;
use super::serve_queue::{FRAGMENT_BYTES, Read, nonsense};

/// Carries out what a peer asks for. Nothing is written unless all of it lies in this rank's part;
/// what comes for a part that was freed here is late, not hostile.
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
            peer.say(group, answer, &[]);
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
                    return Err(nonsense("a read longer than a fragment"));
                }
                peer.serve.add(Read {
                    part,
                    offset,
                    bytes,
                    id,
                })?;
            }
            None => peer.say(group, OneSidedWord::Freed { id }, &[]),
        },
        OneSidedWord::Flush { id } => peer.say(group, OneSidedWord::Flushed { id }, &[]),
        _ => return Err(nonsense("an answer that nobody has asked for")),
    }
    Ok(())
}

fn own_part(pieces: &Pieces, piece: u64, rank: u32) -> Result<Option<Arc<Segment>>, LinkError> {
    match pieces.own_part(piece, rank) {
        OwnPart::Unknown => Err(nonsense("a piece of memory that there is not")),
        OwnPart::Freed => Ok(None),
        OwnPart::There(part) => Ok(Some(part)),
    }
}

fn check(part: &Segment, offset: u64, bytes: u64) -> Result<(), LinkError> {
    let end = offset.checked_add(bytes);
    match end.is_some_and(|end| part.contains(&(offset..end))) {
        true => Ok(()),
        false => Err(nonsense("a range outside of the memory")),
    }
}

fn checked(part: &Segment, update: CellUpdate) -> Result<(&AtomicU64, CellOp), LinkError> {
    let cell = cell_of(part, update.offset).ok_or_else(|| nonsense("no cell is there"))?;
    Ok((cell, update.op))
}
