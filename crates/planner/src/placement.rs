//! The spread of ranks over hosts, and over domains inside hosts.

use serde::Deserialize;
use serde_json::Value;
use weft_schedule::Rank;

use crate::PlannerError;

/// How ranks are spread over hosts: consecutive ranks share one.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub enum Hosts {
    /// This many hosts, with equal numbers of ranks, or the first ones with one more.
    Number(u32),
    /// The number of ranks on each host.
    Ranks(Vec<u32>),
}

impl TryFrom<Value> for Hosts {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let found = match &value {
            Value::Array(sizes) => sizes
                .iter()
                .map(number)
                .collect::<Option<_>>()
                .map(Hosts::Ranks),
            other => number(other).map(Hosts::Number),
        };
        found.ok_or_else(|| {
            format!("hosts={value}: a number of hosts, or a list of the numbers of ranks on each")
        })
    }
}

impl Hosts {
    /// The host of each of `ranks` ranks.
    ///
    /// # Errors
    /// The hosts do not fit this many ranks.
    pub(crate) fn of_ranks(&self, ranks: u32) -> Result<Vec<u32>, PlannerError> {
        self.units_of_ranks("hosts", ranks)
    }

    /// The number of ranks on each host, where there are `ranks` ranks.
    ///
    /// # Errors
    /// As [`Hosts::of_ranks`].
    pub(crate) fn sizes(&self, ranks: u32) -> Result<Vec<u32>, PlannerError> {
        self.sizes_of("hosts", ranks)
    }

    fn units_of_ranks(&self, units: &'static str, ranks: u32) -> Result<Vec<u32>, PlannerError> {
        let sizes = self.sizes_of(units, ranks)?;
        Ok((sizes.iter().zip(0..))
            .flat_map(|(size, unit)| std::iter::repeat_n(unit, *size as usize))
            .collect())
    }

    fn sizes_of(&self, units: &'static str, ranks: u32) -> Result<Vec<u32>, PlannerError> {
        match self {
            Hosts::Number(number) if *number == 0 || *number > ranks => Err(PlannerError::Units {
                units,
                number: *number,
                ranks,
            }),
            Hosts::Number(number) => Ok((0..*number)
                .map(|unit| ranks / number + u32::from(unit < ranks % number))
                .collect()),
            Hosts::Ranks(sizes) => {
                let total: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
                if total != u64::from(ranks) || sizes.contains(&0) {
                    let sizes = sizes.clone();
                    return Err(PlannerError::UnitSizes {
                        units,
                        sizes,
                        ranks,
                    });
                }
                Ok(sizes.clone())
            }
        }
    }
}

/// How the ranks of hosts are spread over domains: consecutive ranks of a host share one.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Domains(pub Hosts);

impl Domains {
    /// The domain of each rank, from the number of domains in each host, or from the number of
    /// ranks in each domain, host by host.
    ///
    /// # Errors
    /// The domains do not fit hosts with these numbers of ranks.
    pub(crate) fn of_ranks(&self, ranks_of_hosts: &[u32]) -> Result<Vec<u32>, PlannerError> {
        if let Hosts::Number(_) = self.0 {
            let of_host = |ranks: &u32| self.0.units_of_ranks("domains", *ranks);
            let of_hosts: Result<Vec<Vec<u32>>, PlannerError> =
                ranks_of_hosts.iter().map(of_host).collect();
            return Ok(of_hosts?.concat());
        }
        let domains = self
            .0
            .units_of_ranks("domains", ranks_of_hosts.iter().sum())?;
        let firsts = ranks_of_hosts.iter().scan(0, |first: &mut Rank, ranks| {
            *first += ranks;
            Some(*first)
        });
        for first in firsts.filter(|first| (*first as usize) < domains.len()) {
            if domains[first as usize - 1] == domains[first as usize] {
                let ranks = [first - 1, first];
                return Err(PlannerError::SharedDomain { ranks });
            }
        }
        Ok(domains)
    }
}
