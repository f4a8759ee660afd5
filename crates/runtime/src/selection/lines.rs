//! Lines of size tables: the policy's candidate, or a profile's rows over the defaults.

use weft_call::Tiling;
use weft_schedule::Collective;

use super::candidates::{CallKind, Candidate};
use super::defaults::preferences;
use super::selector::Selector;
use super::size_table::{Origin, SizeRow};
use crate::Error;

/// The candidate of a profile's row that cannot be used.
const UNUSABLE: u32 = u32::MAX;

impl Selector {
    /// The line for a message of this size.
    pub(crate) fn line(
        &mut self,
        collective: Collective,
        kind: CallKind,
        bytes: u64,
    ) -> Result<SizeRow, Error> {
        let rows = self.rows(collective, kind)?;
        let row = rows.iter().find(|row| bytes <= row.up_to);
        row.copied()
            .ok_or_else(|| Error::Internal("a table without a last line".into()))
    }

    /// All lines, ascending, the last without a limit.
    pub(super) fn rows(
        &mut self,
        collective: Collective,
        kind: CallKind,
    ) -> Result<&[SizeRow], Error> {
        if !self.lines.contains_key(&(collective, kind)) {
            let drawn = self.draw_lines(collective, kind)?;
            self.lines.insert((collective, kind), drawn);
        }
        Ok(&self.lines[&(collective, kind)])
    }

    /// The table for one collective and kind of call.
    fn draw_lines(
        &mut self,
        collective: Collective,
        kind: CallKind,
    ) -> Result<Vec<SizeRow>, Error> {
        let name = collective.name();
        if let Some(forced) = self.policy.algorithms.get(name).cloned() {
            let candidate = self.catalog.candidate(name, &forced, Tiling::default())?;
            if let Some(why) = self.catalog.at(candidate).refusal(self.traits, kind) {
                return Err(self.refused(candidate, why));
            }
            let (up_to, origin) = (u64::MAX, Origin::Policy);
            return Ok(vec![SizeRow {
                up_to,
                candidate,
                origin,
            }]);
        }
        let defaults = self.default_lines(collective, kind)?;
        let measured = self.profile_lines(collective, kind)?;
        let mut ends: Vec<u64> = defaults.iter().chain(&measured).map(|l| l.up_to).collect();
        ends.sort_unstable();
        ends.dedup();
        let find =
            |lines: &[SizeRow], up_to| lines.iter().find(|line| up_to <= line.up_to).copied();
        let merged = ends.into_iter().filter_map(|up_to| {
            let line = find(&measured, up_to)
                .filter(|line| line.candidate != UNUSABLE)
                .or(find(&defaults, up_to))?;
            Some(SizeRow { up_to, ..line })
        });
        Ok(merged.collect())
    }

    pub(crate) fn default_lines(
        &mut self,
        collective: Collective,
        kind: CallKind,
    ) -> Result<Vec<SizeRow>, Error> {
        let name = collective.name();
        let mut lines = Vec::new();
        for (up_to, candidates) in preferences(name, self.traits, kind.memory) {
            let usable = |selector: &mut Self, candidate: &&str| {
                let candidate = selector
                    .catalog
                    .candidate(name, candidate, Tiling::default())
                    .ok()?;
                selector
                    .usable(candidate, collective, kind)
                    .then_some(candidate)
            };
            let mut candidate = candidates.iter().find_map(|c| usable(self, c));
            // Any candidate is better than none.
            if candidate.is_none() {
                let family = self.family(name);
                candidate = family.iter().find_map(|c| usable(self, &c.name().as_str()));
            }
            let Some(candidate) = candidate else {
                return Err(Error::Unsupported(format!(
                    "no algorithm for {name} fits this group"
                )));
            };
            let origin = Origin::Defaults;
            lines.push(SizeRow {
                up_to,
                candidate,
                origin,
            });
        }
        Ok(lines)
    }

    /// The profile's rows; [`UNUSABLE`] where a row cannot be used for this kind of call.
    fn profile_lines(
        &mut self,
        collective: Collective,
        kind: CallKind,
    ) -> Result<Vec<SizeRow>, Error> {
        let name = collective.name();
        let rows = self.table.get(name).cloned().unwrap_or_default();
        let mut lines = Vec::new();
        for row in rows {
            let candidate = self.catalog.candidate(name, &row.algorithm, row.tiling)?;
            let usable = self.usable(candidate, collective, kind);
            lines.push(SizeRow {
                up_to: row.limit(),
                candidate: if usable { candidate } else { UNUSABLE },
                origin: Origin::Profile,
            });
        }
        Ok(lines)
    }

    fn usable(&self, candidate: u32, collective: Collective, kind: CallKind) -> bool {
        let candidate = self.catalog.at(candidate);
        candidate.refusal(self.traits, kind).is_none() && self.fits(candidate, collective, kind)
    }

    /// Whether the temporary memory of a single element per chunk fits into a slot.
    pub(crate) fn fits(
        &self,
        candidate: &Candidate,
        collective: Collective,
        kind: CallKind,
    ) -> bool {
        let schedule = candidate.schedule(&self.site, collective, kind);
        schedule.is_ok_and(|schedule| self.layout.limits.fits(&schedule))
    }
}
