//! Parsing of steps and slices.

use std::ops::Range;

use super::{ParseError, Parser, TokenKind};
use crate::encoding::Encoding;
use crate::ir::{Buffer, Claim, Rank, Slice, Step};

impl Parser<'_> {
    pub(super) fn step(&mut self) -> Result<Step, ParseError> {
        let error = self.error("`copy`, `reduce`, `signal`, `wait`, `rank` or `collective`");
        match self.take_word() {
            Some("copy") => {
                let dsts = self.slices(",")?;
                self.mark("<-")?;
                let src = self.slice()?;
                let claim = self.claim()?;
                Ok(Step::Copy { dsts, src, claim })
            }
            Some("reduce") => {
                let dsts = self.slices(",")?;
                self.mark("<-")?;
                let srcs = self.slices("+")?;
                let is_final = self.at_word("final");
                if is_final {
                    self.word("final")?;
                }
                let claim = self.claim()?;
                Ok(Step::Reduce {
                    dsts,
                    srcs,
                    is_final,
                    claim,
                })
            }
            Some("signal") => {
                let (to, id) = self.peer_and_id()?;
                Ok(Step::Signal { to, id })
            }
            Some("wait") => {
                let (from, id) = self.peer_and_id()?;
                Ok(Step::Wait { from, id })
            }
            _ => Err(error),
        }
    }

    fn peer_and_id(&mut self) -> Result<(Rank, u32), ParseError> {
        let peer = self.number()?;
        self.mark("#")?;
        Ok((peer, self.number()?))
    }

    fn claim(&mut self) -> Result<Option<Claim>, ParseError> {
        if !self.at_word("claim") {
            return Ok(None);
        }
        self.word("claim")?;
        let id = self.number()?;
        self.word("by")?;
        let mut by = vec![self.number()?];
        while self.at(TokenKind::Mark(",")) {
            self.mark(",")?;
            by.push(self.number()?);
        }
        Ok(Some(Claim { id, by }))
    }

    fn slices(&mut self, separator: &'static str) -> Result<Vec<Slice>, ParseError> {
        let mut slices = vec![self.slice()?];
        while self.at(TokenKind::Mark(separator)) {
            self.mark(separator)?;
            slices.push(self.slice()?);
        }
        Ok(slices)
    }

    fn slice(&mut self) -> Result<Slice, ParseError> {
        let mut rank = self.rank;
        if matches!(self.peek(), Some(TokenKind::Number(_))) {
            rank = self.number()?;
            self.mark(".")?;
        }
        let error = self.error("`input`, `output`, `scratch` or `receive`");
        let (buffer, based) = match self.take_word() {
            Some("input") => (Buffer::Input, true),
            Some("output") => (Buffer::Output, true),
            Some("scratch") => self.scratch()?,
            Some("receive") => self.receive()?,
            _ => return Err(error),
        };
        let chunks = self.chunks()?;
        Ok(Slice {
            rank,
            buffer: if based {
                buffer
            } else {
                with_base(buffer, chunks.start)
            },
            chunks,
            encoding: self.encoding()?,
        })
    }

    /// The buffer, and whether its base is stated.
    fn scratch(&mut self) -> Result<(Buffer, bool), ParseError> {
        self.mark("(")?;
        let entry = self.number()?;
        let base = self.base()?;
        let buffer = Buffer::Scratch {
            entry,
            base: base.unwrap_or(0),
        };
        Ok((buffer, base.is_some()))
    }

    /// The buffer, and whether its base is stated.
    fn receive(&mut self) -> Result<(Buffer, bool), ParseError> {
        self.mark("(")?;
        let from = self.number()?;
        self.mark(":")?;
        let entry = self.number()?;
        let base = self.base()?;
        let buffer = Buffer::Receive {
            from,
            entry,
            base: base.unwrap_or(0),
        };
        Ok((buffer, base.is_some()))
    }

    /// The base where it is stated, and the closing parenthesis.
    fn base(&mut self) -> Result<Option<u32>, ParseError> {
        let mut base = None;
        if self.at(TokenKind::Mark("@")) {
            self.mark("@")?;
            base = Some(self.number()?);
        }
        self.mark(")")?;
        Ok(base)
    }

    fn chunks(&mut self) -> Result<Range<u32>, ParseError> {
        self.mark("[")?;
        let error = self.error("a lower chunk");
        let start = self.number()?;
        let end = if self.at(TokenKind::Mark("..")) {
            self.mark("..")?;
            self.number()?
        } else {
            start.checked_add(1).ok_or(error)?
        };
        self.mark("]")?;
        Ok(start..end)
    }

    fn encoding(&mut self) -> Result<Encoding, ParseError> {
        if !self.at(TokenKind::Mark(":")) {
            return Ok(Encoding::Native);
        }
        self.mark(":")?;
        let error = self.error("an encoding");
        self.take_word().and_then(Encoding::from_name).ok_or(error)
    }
}

/// The same buffer with another base.
fn with_base(buffer: Buffer, base: u32) -> Buffer {
    match buffer {
        Buffer::Scratch { entry, .. } => Buffer::Scratch { entry, base },
        Buffer::Receive { from, entry, .. } => Buffer::Receive { from, entry, base },
        Buffer::Input | Buffer::Output => buffer,
    }
}
