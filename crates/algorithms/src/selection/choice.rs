//! Algorithm names given by users, their parsing, and the family of choices for a group.

use weft_schedule::Schedule;

use crate::{
    Algorithm, Conditions, Cost, InsideComponent, MemoryClass, Part, Parts, Reach, Refusal,
    Requirements, ScheduleRequest, Symmetry, Topology, find, registry,
};

/// An algorithm with its components chosen, named as in `ring` or `multi-rail(slice-reduce, ring)`.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// Its components in the order in which the name lists them; none for an algorithm that is not
    /// composed.
    pub parts: Vec<Part>,
}

/// The selection of this name for the collective of this name. Components that the name leaves out
/// are the defaults.
///
/// # Errors
/// There is no such algorithm, or it takes no such components. The message names what is allowed.
pub fn select(collective: &str, name: &str) -> Result<Selection, String> {
    let (head, arguments) = split(name)?;
    let Some(algorithm) = find(collective, head) else {
        return Err(format!(
            "unknown algorithm {head:?} for {collective}; there are: {}",
            listed(of_collective(collective).map(|algorithm| algorithm.name))
        ));
    };
    let parts = match algorithm.requires.parts {
        Parts::None | Parts::Units if arguments.is_empty() => Ok(Vec::new()),
        Parts::None | Parts::Units => Err("takes no components".to_owned()),
        Parts::Count { of, .. } => count(of, &arguments),
        Parts::Levels { inner, top, .. } if arguments.is_empty() => {
            Ok(vec![Part::Algorithm(inner[0].name), Part::Algorithm(top)])
        }
        Parts::Levels { inner, .. } => levels(collective, inner, &arguments),
    };
    match parts {
        Ok(parts) => Ok(Selection { algorithm, parts }),
        Err(why) => Err(format!("{name:?} for {collective}: {head:?} {why}")),
    }
}

/// The components for the levels of units and for the outermost owners.
fn levels(
    collective: &str,
    inner: &'static [InsideComponent],
    arguments: &[&str],
) -> Result<Vec<Part>, String> {
    let Some((top, levels)) = arguments
        .split_last()
        .filter(|(_, levels)| !levels.is_empty())
    else {
        return Err(
            "takes at least a component for the inside of units and one for between them"
                .to_owned(),
        );
    };
    let mut parts = Vec::with_capacity(arguments.len());
    for level in levels {
        let Some(found) = inner.iter().find(|inner| inner.name == *level) else {
            return Err(format!(
                "has no component {level:?} for the inside of units; there are: {}",
                listed(inner.iter().map(|inner| inner.name))
            ));
        };
        parts.push(Part::Algorithm(found.name));
    }
    let Some(found) = tops(collective).find(|algorithm| algorithm.name == *top) else {
        return Err(format!(
            "has no component {top:?} for between units; there are: {}",
            listed(tops(collective).map(|algorithm| algorithm.name))
        ));
    };
    parts.push(Part::Algorithm(found.name));
    Ok(parts)
}

/// The number that was given, if any.
fn count(of: &str, arguments: &[&str]) -> Result<Vec<Part>, String> {
    match arguments {
        [] => Ok(Vec::new()),
        [number] => match number.parse() {
            Ok(count) if count > 0 => Ok(vec![Part::Count(count)]),
            _ => Err(format!(
                "takes a number of {of}, from 1 to {}, not {number:?}",
                u32::MAX
            )),
        },
        _ => Err(format!("takes one number, of {of}")),
    }
}

fn of_collective(collective: &str) -> impl Iterator<Item = &'static Algorithm> {
    registry().filter(move |algorithm| algorithm.collective == collective)
}

/// The algorithms for the outermost owners: all that have no levels themselves.
fn tops(collective: &str) -> impl Iterator<Item = &'static Algorithm> {
    of_collective(collective)
        .filter(|algorithm| !matches!(algorithm.requires.parts, Parts::Levels { .. }))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Every sensible choice for a group of this topology.
///
/// Algorithms for units are left out where no unit has two ranks or all are in one. Every level of
/// units gets the same component; levels inside hosts are used or left out, from the innermost on.
/// The ranks of different innermost units, or of different hosts where these are known, are taken
/// to map no memory of each other.
pub fn family(collective: &str, topology: &Topology) -> Vec<Selection> {
    of_collective(collective)
        .flat_map(|algorithm| match algorithm.requires.parts {
            Parts::None | Parts::Count { .. } => vec![Selection {
                algorithm,
                parts: Vec::new(),
            }],
            Parts::Units if !topology.seen_by(0).is_nested() => Vec::new(),
            Parts::Units => vec![Selection {
                algorithm,
                parts: Vec::new(),
            }],
            Parts::Levels { inner, .. } => (0..=topology.levels_inside_hosts())
                .map(|left_out| topology.seen_by(topology.depth() - left_out))
                .filter(|seen| seen.is_nested())
                .flat_map(|seen| composed(algorithm, inner, &seen))
                .collect(),
        })
        .collect()
}

fn composed(
    algorithm: &'static Algorithm,
    inner: &'static [InsideComponent],
    topology: &Topology,
) -> Vec<Selection> {
    let mapped = match topology.is_one_host() {
        true => Reach::All,
        false => Reach::Unit,
    };
    let conditions = Conditions {
        memory: MemoryClass::Symmetric,
        ..Conditions::ordinary(mapped)
    };
    let mut selections = Vec::new();
    for component in inner {
        for top in tops(algorithm.collective) {
            let mut parts = vec![Part::Algorithm(component.name); topology.depth()];
            parts.push(Part::Algorithm(top.name));
            let selection = Selection { algorithm, parts };
            if selection.refusal(topology, conditions).is_none() {
                selections.push(selection);
            }
        }
    }
    selections
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

    /// Returns its requirements and abilities, its components' included, in groups of which no
    /// level is known to be inside hosts.
    pub fn requires(&self) -> Requirements {
        self.requires_inside(0)
    }

    /// Returns its requirements and abilities in a group of this topology. Ranks of one host map
    /// each other's memory, so there [`Reach::Unit`] means the host.
    pub fn requires_in(&self, topology: &Topology) -> Requirements {
        self.requires_inside(topology.seen_by(self.levels()).levels_inside_hosts())
    }

    /// The number of levels of units that it has components for.
    pub fn levels(&self) -> usize {
        match self.algorithm.requires.parts {
            Parts::Levels { .. } => self.parts.len().saturating_sub(1),
            _ => 0,
        }
    }

    /// The component for the innermost units, if there are levels.
    pub(crate) fn innermost(&self) -> Option<&'static InsideComponent> {
        let Parts::Levels { inner, .. } = self.algorithm.requires.parts else {
            return None;
        };
        let named =
            |inner: &&InsideComponent| self.parts.first() == Some(&Part::Algorithm(inner.name));
        inner.iter().find(named)
    }

    /// Why it cannot carry out a call under these conditions in a group of this topology, if so.
    pub fn refusal(&self, topology: &Topology, conditions: Conditions) -> Option<Refusal> {
        self.requires_in(topology).refusal(conditions)
    }

    fn requires_inside(&self, inside: usize) -> Requirements {
        let own = self.algorithm.requires;
        let Parts::Levels { inner, .. } = own.parts else {
            return own;
        };
        let mut mapped = own.mapped;
        for (level, part) in self.parts[..self.levels()].iter().enumerate() {
            let component = inner
                .iter()
                .find(|inner| *part == Part::Algorithm(inner.name));
            let reads = component.is_some_and(|component| component.reads_peers());
            mapped = mapped.max(match (reads, level) {
                (false, _) => Reach::None,
                (true, level) if level <= inside => Reach::Unit,
                (true, _) => Reach::All,
            });
        }
        let top = self.top().map_or(Requirements::NONE, |top| top.requires);
        Requirements {
            mapped: mapped.max(top.mapped),
            symmetric: own.symmetric || top.symmetric,
            ..own
        }
    }

    /// Makes one rank's program. The request must keep the invariants of [`ScheduleRequest`]; its
    /// `parts` do not matter.
    pub fn build(&self, request: &ScheduleRequest) -> Schedule {
        self.asked(request, self.algorithm.build)
    }

    /// Returns its cost. The request's rank and `parts` do not matter.
    pub fn cost(&self, request: &ScheduleRequest) -> Cost {
        self.asked(request, |request| self.algorithm.cost(request))
    }

    /// The ranks whose programs are the same but for their numbers.
    pub fn symmetry(&self, _request: &ScheduleRequest) -> Symmetry {
        self.algorithm.symmetry
    }

    /// The algorithm among the outermost owners, if there are levels.
    pub(crate) fn top(&self) -> Option<&'static Algorithm> {
        let last = self.parts.last()?;
        tops(self.algorithm.collective).find(|top| *last == Part::Algorithm(top.name))
    }

    /// Calls the algorithm with its view of the topology.
    pub(crate) fn asked<T>(
        &self,
        request: &ScheduleRequest,
        algorithm: impl Fn(&ScheduleRequest) -> T,
    ) -> T {
        algorithm(&ScheduleRequest {
            parts: &self.parts,
            topology: &request.topology.seen_by(self.levels()),
            ..*request
        })
    }
}

/// The part before the parentheses, and the part inside them.
fn split(name: &str) -> Result<(&str, Vec<&str>), String> {
    let Some((head, rest)) = name.split_once('(') else {
        return Ok((name.trim(), Vec::new()));
    };
    let Some(inside) = rest.trim_end().strip_suffix(')') else {
        return Err(format!("{name:?} lacks its closing parenthesis"));
    };
    Ok((head.trim(), inside.split(',').map(str::trim).collect()))
}
