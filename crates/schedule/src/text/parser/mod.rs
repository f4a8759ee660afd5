//! Parser: conversion of text to schedules.

mod steps;

use super::FORMAT;
use super::error::ParseError;
use super::lexer::{self, Token, TokenKind};
use crate::collective::Collective;
use crate::ir::{Fraction, Grid, Rank, Schedule};

/// Reads schedules from their text form, in the order in which they stand there.
///
/// Only the form is checked. Whether the schedules are right is [`verify`](crate::verify)'s to say.
///
/// # Errors
/// The first place where the text departs from the form.
pub fn parse(text: &str) -> Result<Vec<Schedule>, ParseError> {
    let tokens = lexer::tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        behind: tokens.last().map_or((1, 1), |end| (end.line, end.column)),
        rank: 0,
    };
    let mut schedules = Vec::new();
    while !parser.tokens.is_empty() {
        if schedules.is_empty() || parser.at_word("format") {
            parser.format()?;
        }
        if parser.tokens.is_empty() {
            break;
        }
        let header = parser.header()?;
        while parser.at_word("rank") {
            schedules.push(parser.program(&header)?);
        }
    }
    Ok(schedules)
}

/// Takes tokens from the front.
struct Parser<'a> {
    tokens: &'a [Token<'a>],
    /// The line and column where they end.
    behind: (u32, u32),
    /// The rank of the program that is being read.
    rank: Rank,
}

/// Header and programs.
impl Parser<'_> {
    /// The version of the form, which a text states first. Texts of version 1 did not.
    fn format(&mut self) -> Result<(), ParseError> {
        let at = self.error("");
        let refused = |version: u32, hint: &str| ParseError {
            message: format!(
                "this schedule has format {version}, expected `format {FORMAT}`{hint}"
            ),
            ..at
        };
        if self.at_word("collective") {
            let hint = ": there `receive` was `landing`, and `final` was `last`";
            return Err(refused(1, hint));
        }
        self.word("format")?;
        match self.number()? {
            FORMAT => self.line_end(),
            other => Err(refused(other, "")),
        }
    }

    /// A schedule without steps, to be filled for each rank.
    fn header(&mut self) -> Result<Schedule, ParseError> {
        self.word("collective")?;
        let collective = self.collective()?;
        self.line_end()?;
        self.word("ranks")?;
        let ranks = self.number()?;
        self.line_end()?;
        self.word("grid")?;
        let grid = self.grid()?;
        self.line_end()?;
        Ok(Schedule {
            collective,
            ranks,
            rank: 0,
            grid,
            scratch: self.widths("scratch")?,
            receive: self.widths("receive")?,
            steps: Vec::new(),
        })
    }

    fn collective(&mut self) -> Result<Collective, ParseError> {
        let error = self.error("a collective");
        let Some(name) = self.take_word() else {
            return Err(error);
        };
        Ok(match name {
            "all-reduce" => Collective::AllReduce,
            "reduce" => Collective::Reduce {
                root: self.root("to")?,
            },
            "broadcast" => Collective::Broadcast {
                root: self.root("from")?,
            },
            "all-gather" => Collective::AllGather,
            "reduce-scatter" => Collective::ReduceScatter,
            "all-to-all" => Collective::AllToAll,
            "gather" => Collective::Gather {
                root: self.root("to")?,
            },
            "scatter" => Collective::Scatter {
                root: self.root("from")?,
            },
            "barrier" => Collective::Barrier,
            _ => return Err(error),
        })
    }

    fn root(&mut self, preposition: &str) -> Result<Rank, ParseError> {
        self.word(preposition)?;
        self.number()
    }

    fn grid(&mut self) -> Result<Grid, ParseError> {
        let error = self.error("`equal`, `cuts` or `blocks`");
        match self.take_word() {
            Some("equal") => Ok(Grid::Equal(self.number()?)),
            Some("blocks") => Ok(Grid::Blocks(self.number()?)),
            Some("cuts") => {
                let mut cuts = vec![self.fraction()?];
                while !self.at(TokenKind::LineEnd) {
                    cuts.push(self.fraction()?);
                }
                Ok(Grid::Cuts(cuts))
            }
            _ => Err(error),
        }
    }

    fn fraction(&mut self) -> Result<Fraction, ParseError> {
        let numerator = self.number()?;
        self.mark("/")?;
        let denominator = self.number()?;
        Ok(Fraction {
            numerator,
            denominator,
        })
    }

    /// The widths of entries, where the line is there.
    fn widths(&mut self, name: &str) -> Result<Vec<u32>, ParseError> {
        let mut widths = Vec::new();
        if self.at_word(name) {
            self.word(name)?;
            while !self.at(TokenKind::LineEnd) {
                widths.push(self.number()?);
            }
            self.line_end()?;
        }
        Ok(widths)
    }

    fn program(&mut self, header: &Schedule) -> Result<Schedule, ParseError> {
        self.word("rank")?;
        self.rank = self.number()?;
        self.line_end()?;
        let mut steps = Vec::new();
        while !self.tokens.is_empty()
            && !["rank", "collective", "format"]
                .iter()
                .any(|word| self.at_word(word))
        {
            steps.push(self.step()?);
            self.line_end()?;
        }
        Ok(Schedule {
            rank: self.rank,
            steps,
            ..header.clone()
        })
    }
}

/// Tokens.
impl<'a> Parser<'a> {
    fn peek(&self) -> Option<TokenKind<'a>> {
        self.tokens.first().map(|token| token.kind)
    }

    fn at(&self, kind: TokenKind<'_>) -> bool {
        self.peek() == Some(kind)
    }

    fn at_word(&self, word: &str) -> bool {
        self.at(TokenKind::Word(word))
    }

    fn advance(&mut self) {
        self.tokens = self.tokens.get(1..).unwrap_or_default();
    }

    fn take_word(&mut self) -> Option<&'a str> {
        let Some(TokenKind::Word(word)) = self.peek() else {
            return None;
        };
        self.advance();
        Some(word)
    }

    fn word(&mut self, word: &str) -> Result<(), ParseError> {
        if !self.at_word(word) {
            return Err(self.error(&format!("`{word}`")));
        }
        self.advance();
        Ok(())
    }

    fn mark(&mut self, mark: &'static str) -> Result<(), ParseError> {
        if !self.at(TokenKind::Mark(mark)) {
            return Err(self.error(&format!("`{mark}`")));
        }
        self.advance();
        Ok(())
    }

    fn number(&mut self) -> Result<u32, ParseError> {
        let Some(TokenKind::Number(number)) = self.peek() else {
            return Err(self.error("a number"));
        };
        self.advance();
        Ok(number)
    }

    fn line_end(&mut self) -> Result<(), ParseError> {
        if !self.at(TokenKind::LineEnd) {
            return Err(self.error("the end of the line"));
        }
        self.advance();
        Ok(())
    }

    /// The error for an unexpected next token.
    fn error(&self, expected: &str) -> ParseError {
        let found = match self.peek() {
            Some(TokenKind::Word(word)) => format!("`{word}`"),
            Some(TokenKind::Number(number)) => format!("`{number}`"),
            Some(TokenKind::Mark(mark)) => format!("`{mark}`"),
            Some(TokenKind::LineEnd) => "the end of the line".to_owned(),
            None => "the end of the text".to_owned(),
        };
        let next = self.tokens.first();
        let (line, column) = next.map_or(self.behind, |token| (token.line, token.column));
        ParseError {
            line,
            column,
            message: format!("expected {expected}, found {found}"),
        }
    }
}
