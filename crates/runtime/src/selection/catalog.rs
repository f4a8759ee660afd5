//! The ways that a group knows by name: each understood once, those of weft's family and users' own schedules.

use std::sync::Arc;

use weft_algorithms::{Topology, select};
use weft_schedule::Collective;

use super::candidates::Way;
use super::user_schedules::Own;
use crate::Error;
use crate::call::Tiling;

/// A name that was asked for, so that it is understood only once.
struct Name {
    collective: &'static str,
    text: String,
    tiling: Tiling,
    way: u32,
}

/// All ways that were asked for, numbered in the order in which they were.
pub(crate) struct Catalog {
    topology: Topology,
    ways: Vec<Way>,
    names: Vec<Name>,
    own: Vec<Arc<Own>>,
}

impl Catalog {
    pub(crate) fn new(topology: Topology) -> Self {
        Catalog {
            topology,
            ways: Vec::new(),
            names: Vec::new(),
            own: Vec::new(),
        }
    }

    pub(crate) fn at(&self, way: u32) -> &Way {
        &self.ways[way as usize]
    }

    pub(crate) fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// The way of this name, with this tiling.
    pub(crate) fn way(
        &mut self,
        collective: &'static str,
        text: &str,
        tiling: Tiling,
    ) -> Result<u32, Error> {
        let known = self.names.iter().find(|name| {
            name.collective == collective && name.tiling == tiling && name.text == text
        });
        if let Some(known) = known {
            return Ok(known.way);
        }
        let own = |own: &&Arc<Own>| own.collective.name() == collective && own.name == text;
        let way = match self.own.iter().find(own) {
            Some(own) => Way::own(own.clone(), tiling),
            None => {
                let selection = select(collective, text);
                Way::family(
                    collective,
                    selection.map_err(|why| Error::Config(self.with_own(collective, why)))?,
                    tiling,
                    &self.topology,
                )
            }
        };
        let same = |known: &Way| {
            known.collective == collective && known.name == way.name && known.tiling == tiling
        };
        let position = self.ways.iter().position(same).unwrap_or_else(|| {
            self.ways.push(way);
            self.ways.len() - 1
        }) as u32;
        self.names.push(Name {
            collective,
            text: text.into(),
            tiling,
            way: position,
        });
        Ok(position)
    }

    /// An unknown name's message, with the users' own schedules.
    fn with_own(&self, collective: &str, why: String) -> String {
        let own: Vec<&str> = (self.own.iter())
            .filter(|own| own.collective.name() == collective)
            .map(|own| own.name.as_str())
            .collect();
        match own.is_empty() {
            true => why,
            false => format!("{why}; and schedules of your own: {}", own.join(", ")),
        }
    }

    /// A user's schedules. The same again, under the same name, is nothing new.
    pub(crate) fn add_own(&mut self, own: Own) -> Result<(), Error> {
        let known = self.own.iter().find(|known| known.name == own.name);
        let by = match known {
            Some(known) if known.hash == own.hash => return Ok(()),
            Some(_) => "another schedule of your own",
            None if Collective::NAMES
                .iter()
                .any(|c| select(c, &own.name).is_ok()) =>
            {
                "one of weft's algorithms"
            }
            None => {
                self.own.push(Arc::new(own));
                return Ok(());
            }
        };
        Err(Error::Config(format!(
            "the name {:?} is taken by {by}: choose another one",
            own.name
        )))
    }

    pub(crate) fn own(&self) -> &[Arc<Own>] {
        &self.own
    }
}
