//! Names of groups and ranks in error messages, the same on every rank.

use std::fmt;

use crate::Error;

/// A group's name and, for a subgroup, its ranks' numbers in the group of the rendezvous, or in the
/// world.
#[derive(Clone, Debug)]
pub(crate) struct GroupName {
    name: String,
    met: Option<(String, Vec<u32>)>,
}

impl GroupName {
    /// The name of a group whose ranks meet through a store; `global`: their numbers in the world,
    /// if it is a subset of the world.
    pub(crate) fn met(name: &str, global: Option<&[u32]>) -> Self {
        GroupName {
            name: name.into(),
            met: global.map(|ranks| ("the world".into(), ranks.into())),
        }
    }

    /// The name of a group of some of this group's ranks.
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

    /// The name without rank numbers.
    pub(crate) fn text(&self) -> &str {
        &self.name
    }

    /// The number of a rank in error messages: the one in the group of the rendezvous.
    pub(crate) fn rank(&self, rank: u32) -> u32 {
        let global = |(_, ranks): &(String, Vec<u32>)| ranks.get(rank as usize).copied();
        self.met.as_ref().and_then(global).unwrap_or(rank)
    }

    /// Adds the rank's global number to an error that numbers a rank as this group does.
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

    /// Adds the group's name to an error of the rendezvous.
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

/// "0-3, 9, 8": the ranks in their order, with ascending runs shortened.
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
    fn ranks_have_the_numbers_of_the_rendezvous_group() {
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
