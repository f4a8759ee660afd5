//! Lexer: conversion of text to tokens.

use super::ParseError;

/// A token and where it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind<'a>,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenKind<'a> {
    /// Letters, digits and dashes, beginning with a letter.
    Word(&'a str),
    Number(u32),
    /// One of `. , : @ # + / ( ) [ ]`, `..` or `<-`.
    Mark(&'static str),
    LineEnd,
}

/// Longer marks stand before those that they begin with.
const MARKS: [&str; 13] = [
    "<-", "..", ".", ",", ":", "@", "#", "+", "/", "(", ")", "[", "]",
];

/// The tokens of a text. Every line that holds any ends with [`TokenKind::LineEnd`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let before = tokens.len();
        let end = lex_line(line, index as u32 + 1, &mut tokens)?;
        if tokens.len() > before {
            tokens.push(Token {
                kind: TokenKind::LineEnd,
                line: index as u32 + 1,
                column: end,
            });
        }
    }
    Ok(tokens)
}

/// Appends the tokens of a line. Returns the column behind the last one.
fn lex_line<'a>(
    line: &'a str,
    number: u32,
    tokens: &mut Vec<Token<'a>>,
) -> Result<u32, ParseError> {
    let mut rest = line.trim_start();
    let column = |rest: &str| line[..line.len() - rest.len()].chars().count() as u32 + 1;
    let mut end = 1;
    while !rest.is_empty() && !is_comment(rest) {
        let start = column(rest);
        let (kind, behind) = lex_token(rest).map_err(|found| ParseError {
            line: number,
            column: start,
            message: found,
        })?;
        tokens.push(Token {
            kind,
            line: number,
            column: start,
        });
        end = column(behind);
        rest = behind.trim_start();
    }
    Ok(end)
}

/// A `#` begins a comment, unless a number follows directly.
fn is_comment(rest: &str) -> bool {
    let behind = rest.strip_prefix('#');
    behind.is_some_and(|behind| !behind.starts_with(|c: char| c.is_ascii_digit()))
}

fn lex_token(rest: &str) -> Result<(TokenKind<'_>, &str), String> {
    if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
        return Ok((TokenKind::Mark(mark), &rest[mark.len()..]));
    }
    let length = |accept: fn(char) -> bool| rest.find(|c| !accept(c)).unwrap_or(rest.len());
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        let (digits, behind) = rest.split_at(length(|c| c.is_ascii_digit()));
        let number = digits.parse();
        let number = number.map_err(|_| format!("the number {digits} is too large"))?;
        return Ok((TokenKind::Number(number), behind));
    }
    if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let (word, behind) = rest.split_at(length(|c| c.is_ascii_alphanumeric() || c == '-'));
        return Ok((TokenKind::Word(word), behind));
    }
    let found: String = rest.chars().take(1).collect();
    Err(format!("`{}` has no meaning here", found.escape_debug()))
}
