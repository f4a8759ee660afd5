//! The text form of schedules.
//!
//! ```text
//! format 2
//! # What all ranks have in common.
//! collective broadcast from 0
//! ranks 2
//! grid equal 1
//! receive 1
//!
//! rank 0
//!   copy 1.receive(0:0)[0] <- output[0]
//!   signal 1 #0
//! rank 1
//!   wait 0 #0
//!   copy output[0] <- receive(0:0)[0]
//! ```
//! A line is a header line, a rank or a step; `#` at the start of a word that is not a number
//! begins a comment.
//!
//! - A text begins with `format 2`, the version of this form; texts of other versions are refused
//!   by it.
//! - Collectives are `all-reduce`, `reduce to R`, `broadcast from R`, `all-gather`,
//!   `reduce-scatter`, `all-to-all`, `gather to R`, `scatter from R` and `barrier`. They begin a
//!   header, which holds until the next one.
//! - Grids are `equal N`, `blocks N`, and `cuts 0/1 1/3 ... 1/1`.
//! - `scratch` and `receive` list the widths of their entries; without entries they are left out.
//! - A slice is `[RANK.]BUFFER[CHUNKS][:ENCODING]`. Without a rank it is that of the program.
//!   Chunks are `2` or `2..5`. Buffers are `input`, `output`, `scratch(ENTRY)` and
//!   `receive(FROM:ENTRY)`. The base of an entry is the first chunk of the slice, or as in
//!   `scratch(0@1)[2]`.
//! - Steps are `copy DST, ... <- SRC`, `reduce DST, ... <- SRC + ... [final]`, both with
//!   `[claim ID by RANK, ...]`, `signal TO #ID` and `wait FROM #ID`.

mod error;
mod lexer;
mod parser;
mod printer;

pub use error::ParseError;
pub use parser::parse;
pub use printer::print;
pub(crate) use printer::step;

/// The version of the form. Format 1 did not state it; there `receive` was `landing`, and `final`
/// was `last`.
const FORMAT: u32 = 2;
