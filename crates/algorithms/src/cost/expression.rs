//! Expressions in the number of ranks: exact values and readable text.

use std::ops::{Add, Div, Mul, Sub};

use weft_schedule::Share;

/// A variable of formulas: its name, and its value for a number of ranks.
type Atom = (&'static str, fn(u32) -> u32);

const ATOMS: [Atom; 5] = [
    ("⌊log₂ P⌋", |ranks| ranks.ilog2()),
    ("⌈log₂ P⌉", ceil_log),
    ("⌊log₂ (P − 1)⌋", |ranks| (ranks - 1).ilog2()),
    ("P − 1", |ranks| ranks - 1),
    ("P", |ranks| ranks),
];

/// ⌊log2 P⌋.
pub(crate) const FLOOR_LOG: Expr = Expr::atom(0);
/// ⌈log2 P⌉.
pub(crate) const CEIL_LOG: Expr = Expr::atom(1);
/// ⌊log2 (P - 1)⌋.
pub(crate) const FLOOR_LOG_OTHERS: Expr = Expr::atom(2);
/// All ranks but one.
pub(crate) const OTHERS: Expr = Expr::atom(3);
/// The number of ranks.
pub(crate) const RANKS: Expr = Expr::atom(4);
/// A block of the message, where it has one per rank.
pub(crate) const BLOCK: Expr = Expr::of(Term {
    powers: [0, 0, 0, 0, -1],
    ..Term::ONE
});
/// All blocks but one.
pub(crate) const OTHER_BLOCKS: Expr = Expr::of(Term {
    powers: [0, 0, 0, 1, -1],
    ..Term::ONE
});

fn ceil_log(ranks: u32) -> u32 {
    ranks.next_power_of_two().ilog2()
}

/// A fraction in lowest terms, its denominator above 0.
type Ratio = (i128, i128);

/// A product of powers of the atoms. Nothing if its factor is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Term {
    factor: Ratio,
    powers: [i8; ATOMS.len()],
}

impl Term {
    const ONE: Term = Term {
        factor: (1, 1),
        powers: [0; ATOMS.len()],
    };
    const NOTHING: Term = Term {
        factor: (0, 1),
        ..Term::ONE
    };
}

/// The most terms of a sum.
const TERMS: usize = 4;

/// A sum of products of the atoms, sorted. It is evaluated for two ranks or more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expr([Term; TERMS]);

impl Expr {
    const fn of(term: Term) -> Expr {
        let mut terms = [Term::NOTHING; TERMS];
        terms[0] = term;
        Expr(terms)
    }

    const fn atom(index: usize) -> Expr {
        let mut powers = [0; ATOMS.len()];
        powers[index] = 1;
        Expr::of(Term {
            powers,
            ..Term::ONE
        })
    }

    /// The fraction `parts / of`.
    pub(crate) fn parts(parts: u64, of: u64) -> Expr {
        Expr::of(Term {
            factor: reduced((parts.into(), of.into())),
            ..Term::ONE
        })
    }

    fn terms(&self) -> impl Iterator<Item = &Term> {
        self.0.iter().filter(|term| term.factor.0 != 0)
    }

    fn ratio(&self, ranks: u32) -> Ratio {
        let value = |term: &Term| {
            let powers = term.powers.iter().zip(ATOMS);
            powers.fold(term.factor, |(over, under), (power, (_, value))| {
                let atom = i128::from(value(ranks)).pow(power.unsigned_abs().into());
                match *power {
                    ..0 => (over, under * atom),
                    _ => (over * atom, under),
                }
            })
        };
        self.terms().map(value).fold((0, 1), sum)
    }

    /// Its exact value for this many ranks.
    pub(crate) fn share(&self, ranks: u32) -> Share {
        let (over, under) = self.ratio(ranks);
        Share::new(over as u64, under as u64)
    }

    /// Its value for this many ranks, to be priced.
    pub(crate) fn value(&self, ranks: u32) -> f64 {
        let (over, under) = self.ratio(ranks);
        over as f64 / under as f64
    }

    /// Its value for this many ranks, which must be a whole number.
    pub(crate) fn count(&self, ranks: u32) -> u32 {
        let (over, under) = self.ratio(ranks);
        (over / under) as u32
    }

    /// Its text, as a multiple of `unit`.
    pub(crate) fn text(&self, unit: &str) -> String {
        if *self == OTHERS + 1 && unit.is_empty() {
            return "P".to_owned();
        }
        let terms = self.terms().map(|term| term_text(term, unit));
        terms.collect::<Vec<_>>().join(" + ")
    }
}

fn term_text(term: &Term, unit: &str) -> String {
    let names = |sign: i8| {
        let atoms = ATOMS.iter().zip(term.powers);
        atoms.filter(move |(_, power)| power.signum() == sign)
    };
    let (over, under) = term.factor;
    let alone = over == 1 && unit.is_empty() && names(1).count() == 1;
    let mut factors = Vec::new();
    factors.extend((over != 1).then(|| over.to_string()));
    factors.extend((!unit.is_empty()).then(|| unit.to_owned()));
    factors.extend(names(1).map(|((name, _), _)| match *name {
        "P − 1" if !alone => format!("({name})"),
        name => name.to_owned(),
    }));
    if factors.is_empty() {
        factors.push("1".to_owned());
    }
    let mut parts = vec![factors.join(" ")];
    parts.extend((under != 1).then(|| under.to_string()));
    parts.extend(names(-1).map(|((name, _), _)| (*name).to_owned()));
    parts.join(" / ")
}

fn reduced((over, under): Ratio) -> Ratio {
    let (mut a, mut b) = (over.abs(), under);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (over / a.max(1), under / a.max(1))
}

fn sum(a: Ratio, b: Ratio) -> Ratio {
    reduced((a.0 * b.1 + b.0 * a.1, a.1 * b.1))
}

impl Default for Expr {
    fn default() -> Self {
        Expr::of(Term::NOTHING)
    }
}

impl From<u32> for Expr {
    fn from(number: u32) -> Self {
        Expr::parts(number.into(), 1)
    }
}

impl<T: Into<Expr>> Add<T> for Expr {
    type Output = Expr;

    fn add(self, other: T) -> Expr {
        let mut terms: Vec<Term> = self.terms().copied().collect();
        for term in other.into().terms() {
            match terms.iter_mut().find(|of| of.powers == term.powers) {
                Some(same) => same.factor = sum(same.factor, term.factor),
                None => terms.push(*term),
            }
        }
        terms.retain(|term| term.factor.0 != 0);
        terms.sort_by_key(|term| {
            let first = term.powers.iter().position(|power| *power != 0);
            (first, term.powers)
        });
        let mut sum = Expr::default();
        assert!(terms.len() <= TERMS, "a formula of {} terms", terms.len());
        sum.0[..terms.len()].copy_from_slice(&terms);
        sum
    }
}

impl<T: Into<Expr>> Sub<T> for Expr {
    type Output = Expr;

    fn sub(self, other: T) -> Expr {
        let mut negative = other.into();
        for term in &mut negative.0 {
            term.factor.0 = -term.factor.0;
        }
        self + negative
    }
}

impl<T: Into<Expr>> Mul<T> for Expr {
    type Output = Expr;

    fn mul(self, other: T) -> Expr {
        let other = other.into();
        let products = self.terms().flat_map(|a| {
            other.terms().map(|b| {
                let factor = (a.factor.0 * b.factor.0, a.factor.1 * b.factor.1);
                Expr::of(Term {
                    factor: reduced(factor),
                    powers: std::array::from_fn(|atom| a.powers[atom] + b.powers[atom]),
                })
            })
        });
        products.fold(Expr::default(), Add::add)
    }
}

/// By one term.
impl<T: Into<Expr>> Div<T> for Expr {
    type Output = Expr;

    fn div(self, other: T) -> Expr {
        let divisor = other.into().0[0];
        let inverse = Expr::of(Term {
            factor: (divisor.factor.1, divisor.factor.0),
            powers: divisor.powers.map(|power| -power),
        });
        self.mul(inverse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_texts_and_values() {
        for (expression, unit, text, at_six) in [
            (OTHERS * 2, "", "2 (P − 1)", (10, 1)),
            (OTHERS + 1, "", "P", (6, 1)),
            (FLOOR_LOG + OTHERS + 1, "", "1 + ⌊log₂ P⌋ + P − 1", (8, 1)),
            (OTHER_BLOCKS + OTHER_BLOCKS, "N", "2 N (P − 1) / P", (5, 3)),
            (BLOCK / 2, "N", "N / 2 / P", (1, 12)),
            (CEIL_LOG * RANKS * BLOCK, "N", "N ⌈log₂ P⌉", (3, 1)),
            (OTHERS - OTHERS, "N", "", (0, 1)),
        ] {
            let value = expression.share(6);
            assert_eq!((value.numerator, value.denominator), at_six, "{text}");
            assert_eq!(expression.text(unit), text);
        }
    }
}
