//! What a user's name for an algorithm means, and which choices there are for a group.

use std::fmt;

use weft_schedule::Schedule;

use crate::{Algorithm, Request, Requirements, Topology, registry};

/// One choice that an algorithm leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// The name of an algorithm that it is composed of.
    Algorithm(&'static str),
    /// How many there are of something, such as servers.
    Count(u32),
}

/// An algorithm with its components chosen: what a name such as `ring` or `multi-rail(slice-reduce, ring)` stands for.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// Its components in the order in which the name lists them; none for an algorithm that is not composed.
    pub parts: Vec<Part>,
}

/// The selection of this name for the collective of this name.
///
/// # Errors
/// There is no such algorithm, or it takes no such components. The message names what is allowed.
pub fn select(collective: &str, name: &str) -> Result<Selection, String> {
    let (head, parts) = split(name)?;
    let candidates = || registry().iter().filter(|a| a.collective == collective);
    let Some(algorithm) = candidates().find(|candidate| candidate.name == head) else {
        let known: Vec<&str> = candidates().map(|candidate| candidate.name).collect();
        return Err(format!(
            "unknown algorithm {head:?} for {collective}; there are: {}",
            known.join(", ")
        ));
    };
    if !parts.is_empty() {
        return Err(format!(
            "{name:?} names components, but {collective} {head:?} has none"
        ));
    }
    Ok(Selection {
        algorithm,
        parts: Vec::new(),
    })
}

/// Every sensible choice for a group of this topology.
pub fn family(collective: &str, _topology: &Topology) -> Vec<Selection> {
    let algorithms = registry().iter().filter(|a| a.collective == collective);
    algorithms
        .map(|algorithm| Selection {
            algorithm,
            parts: Vec::new(),
        })
        .collect()
}

impl Selection {
    /// The name, as [`select`] understands it.
    pub fn name(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(Part::to_string).collect();
        match parts.as_slice() {
            [] => self.algorithm.name.to_owned(),
            parts => format!("{}({})", self.algorithm.name, parts.join(", ")),
        }
    }

    /// What it needs and can do.
    pub fn requires(&self) -> Requirements {
        self.algorithm.requires
    }

    /// Makes one rank's program. The request must keep the invariants of [`Request`]; its `parts` do not matter.
    pub fn build(&self, request: &Request) -> Schedule {
        (self.algorithm.build)(&Request {
            parts: &self.parts,
            ..*request
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Algorithm(name) => f.write_str(name),
            Part::Count(count) => write!(f, "{count}"),
        }
    }
}

/// The part before the parentheses, and what stands in them.
fn split(name: &str) -> Result<(&str, Vec<&str>), String> {
    let Some((head, rest)) = name.split_once('(') else {
        return Ok((name.trim(), Vec::new()));
    };
    let Some(inside) = rest.trim_end().strip_suffix(')') else {
        return Err(format!("{name:?} lacks its closing parenthesis"));
    };
    Ok((head.trim(), inside.split(',').map(str::trim).collect()))
}
