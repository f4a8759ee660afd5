//! Names of groups and of their ranks, in the form that messages use on every rank.

use std::fmt;

use crate::Error;

/// A group's name and, where it is of some ranks of a larger one, their numbers there: those of the
/// group that they met in, or of the world.
#[derive(Clone, Debug)]
pub(crate) struct GroupName {
    name: String,
    met: Option<(String, Vec<u32>)>,
}

impl GroupName {
    /// Of a group whose ranks meet through a store; `global`: their numbers in the world, where it
    /// is of some of its ranks.
    pub(crate) fn met(name: &str, global: Option<&[u32]>) -> Self {
        GroupName {
            name: name.into(),
            met: global.map(|ranks| ("the world".into(), ranks.into())),
        }
    }

    /// Of a group of some of this group's ranks.
    pub(crate) fn split(&self, name: &str, ranks: &[u32]) -> Self {
        let met = self.met.as_ref().map_or(&self.name, |(met, _)| met);
        GroupName {
            name: name.into(),
            met: Some((
                met.clone(),
                ranks.iter().map(|rank| self.rank(*rank)).collect(),
            )),
        }
    }

    /// Without the numbers of its ranks.
    pub(crate) fn text(&self) -> &str {
        &self.name
    }

    /// The number that messages give a rank: the one in the group that its ranks met in.
    pub(crate) fn rank(&self, rank: u32) -> u32 {
        let global = |(_, ranks): &(String, Vec<u32>)| ranks.get(rank as usize).copied();
        self.met.as_ref().and_then(global).unwrap_or(rank)
    }

    /// An error that numbers a rank as this group does, with its other number.
    pub(crate) fn explained(&self, mut error: Error) -> Error {
        if let Error::PeerLost {
            rank: Some(rank),
            detail,
            ..
        } = &mut error
            && let Some((met, _)) = &self.met
        {
            let global = self.rank(*rank);
            *detail = format!("{detail} (in {self}, where it is rank {global} of {met})");
        }
        error
    }

    /// An error of the rendezvous, which knows nothing of names.
    pub(crate) fn at_rendezvous(&self, mut error: Error) -> Error {
        if let Error::Timeout { operation, .. } = &mut error
            && self.met.is_some()
        {
            *operation = format!("{operation} of {self}");
        }
        error
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.name)?;
        match &self.met {
            Some((met, ranks)) => write!(f, " (ranks {} of {met})", listed(ranks)),
            None => Ok(()),
        }
    }
}

/// "0-3, 9, 8": in their order, neighbours that count up as one.
pub(crate) fn listed(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] if run.len() > 2 => format!("{first}-{last}"),
            few => few
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbered_as_in_the_group_that_they_met_in() {
        let world = GroupName::met("world", None);
        let some = world.split("some", &[1, 3, 4, 5, 2]);
        let pair = some.split("pair", &[4, 0]);
        assert_eq!(world.to_string(), "group world");
        assert_eq!(some.to_string(), "group some (ranks 1, 3-5, 2 of world)");
        assert_eq!(pair.to_string(), "group pair (ranks 2, 1 of world)");
        assert_eq!((world.rank(3), pair.rank(0)), (3, 2));
        let torch = GroupName::met("torch", Some(&[4, 6, 8]));
        let half = torch.split("half", &[2, 0]);
        assert_eq!(
            torch.to_string(),
            "group torch (ranks 4, 6, 8 of the world)"
        );
        assert_eq!(half.to_string(), "group half (ranks 8, 4 of the world)");
    }
}
