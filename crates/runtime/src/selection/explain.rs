//! Explanations: the choice for a call, and its reasons.

use weft_algorithms::{MemoryClass, Refusal};
use weft_call::{Call, Counts, Op, Tiling};
use weft_kernels::DType;
use weft_program::Geometry;
use weft_schedule::{Collective, WireFormat};

use super::candidates::{CallKind, Candidate};
use super::selector::Selector;
use super::size_table::{Origin, SizeRow};
use crate::Error;

/// The explanation of the choice for a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The algorithm's name, with its parts.
    pub algorithm: String,
    /// The tiling that a profile's row or the call requests.
    pub requested: Tiling,
    /// Bytes of the largest chunk in one tile.
    pub tile_bytes: u64,
    /// The number of tiles.
    pub tiles: u64,
    /// The most concurrent tiles.
    pub tiles_in_flight: u32,
    /// The plan's hash: the same on all ranks, and in every run.
    pub hash: u64,
    /// The programs of all ranks in text form, for a user schedule.
    pub schedule: Option<String>,
    /// The reasons for or against each candidate, the chosen one first.
    pub why: Vec<String>,
}

/// The choice for calls of one collective up to a size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The largest message in bytes, all blocks together; `None` without a limit.
    pub up_to_bytes: Option<u64>,
    /// The algorithm's name, with its parts.
    pub algorithm: String,
    /// The origin of the choice.
    pub origin: Origin,
}

impl Selector {
    /// The choices for calls of a collective on ordinary memory, by the size of the message. An
    /// algorithm that the policy names may need symmetric memory.
    pub(crate) fn choices(&mut self, collective: Collective) -> Result<Vec<Choice>, Error> {
        let kind = |memory| CallKind {
            memory,
            per_rank: false,
            wire: WireFormat::Full,
        };
        let rows = match self.rows(collective, kind(MemoryClass::Ordinary)) {
            Ok(rows) => rows.to_vec(),
            Err(_) => self
                .rows(collective, kind(MemoryClass::Symmetric))?
                .to_vec(),
        };
        let mut choices: Vec<Choice> = Vec::new();
        for row in rows {
            let choice = Choice {
                up_to_bytes: (row.up_to != u64::MAX).then_some(row.up_to),
                algorithm: self.catalog.at(row.candidate).name.clone(),
                origin: row.origin,
            };
            match choices.last_mut() {
                Some(last) if (&last.algorithm, last.origin) == (&choice.algorithm, row.origin) => {
                    last.up_to_bytes = choice.up_to_bytes;
                }
                _ => choices.push(choice),
            }
        }
        Ok(choices)
    }

    /// Explains the choice for a call: a message of `bytes` (all blocks together), the same count
    /// on every rank.
    pub(crate) fn explain(
        &mut self,
        collective: Collective,
        bytes: u64,
        dtype: DType,
        memory: MemoryClass,
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
            wire: None,
        }
        .with_wire_format(self.policy.wire);
        let (candidate, memory) = self.candidate(&call, memory)?;
        let kind = CallKind {
            memory,
            per_rank: false,
            wire: self.wire(&call)?,
        };
        let line = self.line(collective, kind, bytes)?;
        let plan = self.plan(candidate, collective, kind)?;
        let shape = &plan.program.shape;
        let geometry =
            Geometry::tiled(&call, shape, self.layout, None, plan.tile_bytes, plan.wire)?;
        let candidate = self.catalog.at(candidate);
        Ok(Explanation {
            algorithm: candidate.name.clone(),
            requested: candidate.tiling,
            tile_bytes: geometry.tile_bytes(),
            tiles: geometry.tiles,
            tiles_in_flight: plan.tiles_in_flight as u32,
            hash: candidate.hash(memory, kind.wire),
            schedule: candidate.own_text().map(str::to_owned),
            why: self.reasons(collective, kind, line),
        })
    }

    /// The reasons for the candidate of this row, and against the others.
    fn reasons(&self, collective: Collective, kind: CallKind, line: SizeRow) -> Vec<String> {
        let chosen = self.catalog.at(line.candidate);
        let limit = match line.up_to {
            u64::MAX => "messages without a limit".to_owned(),
            bytes => format!("messages of up to {bytes} bytes"),
        };
        let origin = match line.origin {
            Origin::Policy => {
                "the only one that the group's options or the configuration allow".into()
            }
            Origin::Profile => format!("the profile's choice for {limit}"),
            Origin::Defaults if self.traits.delayed => {
                format!("the built-in default over links with delay for {limit}")
            }
            Origin::Defaults => format!("the built-in default for {limit}"),
        };
        let mut reasons = vec![format!("{}: chosen, {origin}", chosen.name)];
        if kind.wire != WireFormat::Full {
            reasons.push(format!(
                "wire format {}: the group's for sums of float32",
                kind.wire
            ));
        }
        let name = collective.name();
        let family = (self.family(name).into_iter()).map(|selection| {
            Candidate::family(name, selection, Tiling::default(), &self.site.topology)
        });
        let user_schedules = (self.catalog.user_schedules().iter())
            .filter(|schedule| schedule.collective.name() == name)
            .map(|schedule| Candidate::of_user(schedule.clone(), Tiling::default()));
        for candidate in family
            .chain(user_schedules)
            .filter(|candidate| candidate.name != chosen.name)
        {
            let why = match candidate.refusal(self.traits, kind) {
                Some(why) => format!("refused: {why}"),
                None => match candidate.schedule(&self.site, collective, kind) {
                    Err(why) => format!("refused: {why}"),
                    Ok(schedule) if !self.layout.limits.fits(&schedule) => {
                        format!("refused: {}", Refusal::TemporaryMemory)
                    }
                    Ok(_) => format!("possible; {} comes first", chosen.name),
                },
            };
            reasons.push(format!("{}: {why}", candidate.name));
        }
        reasons
    }
}
