//! What runs by what, for all sizes of one kind of call: the only one that is allowed, else a profile's rows over the defaults.

use weft_schedule::Collective;

use super::candidates::{Kind, Way};
use super::defaults::preferences;
use super::selector::Chooser;
use crate::Error;
use crate::call::Tiling;

/// Messages of up to so many bytes take this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) up_to: u64,
    pub(crate) way: u32,
    pub(crate) origin: Origin,
}

/// Who has chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Policy,
    Profile,
    Defaults,
}

/// Stands for a row of a profile that cannot be used.
const NO_WAY: u32 = u32::MAX;

impl Chooser {
    /// The line for a message of this size.
    pub(crate) fn line(
        &mut self,
        collective: Collective,
        kind: Kind,
        bytes: u64,
    ) -> Result<Line, Error> {
        if !self.lines.contains_key(&(collective, kind)) {
            let drawn = self.draw_lines(collective, kind)?;
            self.lines.insert((collective, kind), drawn);
        }
        let lines = &self.lines[&(collective, kind)];
        let line = lines.iter().find(|line| bytes <= line.up_to);
        line.copied()
            .ok_or_else(|| Error::Internal("a table without a last line".into()))
    }

    /// What runs by what, for one collective and kind of call.
    fn draw_lines(&mut self, collective: Collective, kind: Kind) -> Result<Vec<Line>, Error> {
        let name = collective.name();
        if let Some(forced) = self.policy.algorithms.get(name).cloned() {
            let way = self.catalog.way(name, &forced, Tiling::default())?;
            if let Some(why) = self.catalog.at(way).refusal(self.setting, kind) {
                return Err(self.refused(way, why));
            }
            let (up_to, origin) = (u64::MAX, Origin::Policy);
            return Ok(vec![Line { up_to, way, origin }]);
        }
        let defaults = self.default_lines(collective, kind)?;
        let measured = self.profile_lines(collective, kind)?;
        let mut ends: Vec<u64> = defaults.iter().chain(&measured).map(|l| l.up_to).collect();
        ends.sort_unstable();
        ends.dedup();
        let find = |lines: &[Line], up_to| lines.iter().find(|line| up_to <= line.up_to).copied();
        let merged = ends.into_iter().filter_map(|up_to| {
            let line = find(&measured, up_to)
                .filter(|line| line.way != NO_WAY)
                .or(find(&defaults, up_to))?;
            Some(Line { up_to, ..line })
        });
        Ok(merged.collect())
    }

    pub(crate) fn default_lines(
        &mut self,
        collective: Collective,
        kind: Kind,
    ) -> Result<Vec<Line>, Error> {
        let name = collective.name();
        let mut lines = Vec::new();
        for (up_to, candidates) in preferences(name, self.setting, kind.memory) {
            let usable = |chooser: &mut Self, candidate: &&str| {
                let way = chooser
                    .catalog
                    .way(name, candidate, Tiling::default())
                    .ok()?;
                chooser.usable(way, collective, kind).then_some(way)
            };
            let mut way = candidates.iter().find_map(|c| usable(self, c));
            // Whatever is there is better than nothing.
            if way.is_none() {
                let family = self.family(name);
                way = family.iter().find_map(|c| usable(self, &c.name().as_str()));
            }
            let Some(way) = way else {
                return Err(Error::Unsupported(format!(
                    "no algorithm for {name} fits this group"
                )));
            };
            let origin = Origin::Defaults;
            lines.push(Line { up_to, way, origin });
        }
        Ok(lines)
    }

    /// The profile's rows; [`NO_WAY`] where a row cannot be used for this kind of call.
    fn profile_lines(&mut self, collective: Collective, kind: Kind) -> Result<Vec<Line>, Error> {
        let name = collective.name();
        let rows = self.table.get(name).cloned().unwrap_or_default();
        let mut lines = Vec::new();
        for row in rows {
            let way = self.catalog.way(name, &row.algorithm, row.tiling)?;
            let usable = self.usable(way, collective, kind);
            lines.push(Line {
                up_to: row.limit(),
                way: if usable { way } else { NO_WAY },
                origin: Origin::Profile,
            });
        }
        Ok(lines)
    }

    fn usable(&self, way: u32, collective: Collective, kind: Kind) -> bool {
        let way = self.catalog.at(way);
        way.refusal(self.setting, kind).is_none() && self.fits(way, collective, kind)
    }

    /// Whether the temporary memory of a single element per chunk fits into a slot.
    pub(crate) fn fits(&self, way: &Way, collective: Collective, kind: Kind) -> bool {
        let schedule = way.schedule(&self.site, collective, kind);
        schedule.is_ok_and(|schedule| self.layout.limits.fits(&schedule))
    }
}
