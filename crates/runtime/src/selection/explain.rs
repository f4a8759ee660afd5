//! Explanations: what a call would run by, and why.

use weft_algorithms::{Memory, Refusal};
use weft_kernels::DType;
use weft_schedule::Collective;

use super::candidates::{Kind, Way};
use super::selector::Chooser;
use super::size_table::{Line, Origin};
use crate::Error;
use crate::call::{Call, Counts, Op, Tiling};
use crate::program::Geometry;

/// What a call would run by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The algorithm's name, with its parts.
    pub algorithm: String,
    /// The tiling that was asked for, by a profile's row or in the call.
    pub asked: Tiling,
    /// The part of the largest chunk that one tile takes, in bytes.
    pub tile_bytes: u64,
    /// The number of tiles.
    pub tiles: u64,
    /// How many of them may be under way at once.
    pub tiles_in_flight: u32,
    /// Tells plans apart: the same on all ranks, and for the same plan in every run.
    pub hash: u64,
    /// The programs of all ranks in text form, where it is a user's own schedule.
    pub schedule: Option<String>,
    /// What was considered, and why it was chosen or not, the chosen one first.
    pub why: Vec<String>,
}

impl Chooser {
    /// What a call would run by: a message of `bytes` (all blocks together), the same count on every rank.
    pub(crate) fn explain(
        &mut self,
        collective: Collective,
        bytes: u64,
        dtype: DType,
        memory: Memory,
    ) -> Result<Explanation, Error> {
        let elements = bytes.div_ceil(dtype.size() as u64);
        let count = match collective.in_place() {
            true => elements,
            false => elements.div_ceil(u64::from(self.site.ranks)),
        };
        let call = Call {
            collective,
            dtype,
            op: Op::Sum,
            input: std::ptr::null(),
            output: std::ptr::null_mut(),
            counts: Counts::Equal(count),
            priority: 0,
            timeout: None,
            algorithm: None,
            tiling: Tiling::default(),
        };
        let (way, memory) = self.candidate(&call, memory)?;
        let kind = Kind {
            memory,
            per_rank: false,
        };
        let line = self.line(collective, kind, bytes)?;
        let plan = self.plan(way, collective, memory, false)?;
        let shape = &plan.program.shape;
        let geometry = Geometry::tiled(&call, shape, self.layout, None, plan.tile_bytes)?;
        let way = self.catalog.at(way);
        Ok(Explanation {
            algorithm: way.name.clone(),
            asked: way.tiling,
            tile_bytes: geometry.tile_bytes(),
            tiles: geometry.tiles,
            tiles_in_flight: plan.tiles_in_flight as u32,
            hash: way.hash(memory),
            schedule: way.own_text().map(str::to_owned),
            why: self.reasons(collective, kind, line),
        })
    }

    /// Why the way of this line was chosen, and the others were not.
    fn reasons(&self, collective: Collective, kind: Kind, line: Line) -> Vec<String> {
        let chosen = self.catalog.at(line.way);
        let limit = match line.up_to {
            u64::MAX => "messages without a limit".to_owned(),
            bytes => format!("messages of up to {bytes} bytes"),
        };
        let origin = match line.origin {
            Origin::Policy => {
                "the only one that the group's options or the configuration allow".into()
            }
            Origin::Profile => format!("what the profile says for {limit}"),
            Origin::Defaults => format!("the built-in default for {limit}"),
        };
        let mut reasons = vec![format!("{}: chosen, {origin}", chosen.name)];
        let name = collective.name();
        let family = (self.family(name).into_iter())
            .map(|selection| Way::family(name, selection, Tiling::default(), &self.site.topology));
        let own = (self.catalog.own().iter())
            .filter(|own| own.collective.name() == name)
            .map(|own| Way::own(own.clone(), Tiling::default()));
        for way in family.chain(own).filter(|way| way.name != chosen.name) {
            let why = match way.refusal(self.setting, kind) {
                Some(why) => format!("refused: {why}"),
                None => match way.schedule(&self.site, collective, kind) {
                    Err(why) => format!("refused: {why}"),
                    Ok(schedule) if !self.layout.limits.fits(&schedule) => {
                        format!("refused: {}", Refusal::TemporaryMemory)
                    }
                    Ok(_) => format!("possible; {} comes first", chosen.name),
                },
            };
            reasons.push(format!("{}: {why}", way.name));
        }
        reasons
    }
}
