//! Grids with the cuts of several parts: exact shares of the message, and where a part's chunks begin among them.

use std::cmp::Ordering;
use std::ops::Range;

use weft_schedule::{Fraction, Grid};

/// From which share of the message to which.
pub(crate) type Window = Range<Fraction>;

/// The whole message.
pub(crate) const WHOLE: Window = share(0, 1)..share(1, 1);

/// The share `numerator / denominator`.
pub(crate) const fn share(numerator: u32, denominator: u32) -> Fraction {
    Fraction {
        numerator,
        denominator,
    }
}

/// The cuts of a grid that all parts can be laid over.
pub(crate) struct Cuts {
    ascending: Vec<Fraction>,
}

impl Cuts {
    /// All cuts that these grids have when each is laid over its window.
    pub(crate) fn of<'a>(grids: impl IntoIterator<Item = (&'a Grid, Window)>) -> Self {
        let mut ascending: Vec<Fraction> = vec![WHOLE.start, WHOLE.end];
        for (grid, window) in grids {
            ascending.extend(laid_over(grid, &window));
        }
        ascending.sort_by(compare);
        ascending.dedup_by(|a, b| compare(a, b) == Ordering::Equal);
        Cuts { ascending }
    }

    /// The grid with these cuts.
    pub(crate) fn grid(&self) -> Grid {
        let chunks = self.chunks();
        let mut expected = (0..=chunks).map(|index| share(index, chunks));
        match self.ascending.iter().all(|cut| {
            expected
                .next()
                .is_some_and(|share| compare(cut, &share) == Ordering::Equal)
        }) {
            true => Grid::Equal(chunks),
            false => Grid::Cuts(self.ascending.clone()),
        }
    }

    /// The cuts themselves, ascending from 0 to 1.
    pub(crate) fn into_fractions(self) -> Vec<Fraction> {
        self.ascending
    }

    /// The number of chunks.
    pub(crate) fn chunks(&self) -> u32 {
        self.ascending.len() as u32 - 1
    }

    /// Where each chunk of a grid begins that is laid over a window, and behind them where the window ends. The cuts must be
    /// those of this grid among others.
    pub(crate) fn starts(&self, grid: &Grid, window: &Window) -> Vec<u32> {
        let index_of = |cut: Fraction| {
            let found = self.ascending.binary_search_by(|own| compare(own, &cut));
            found.expect("the grid is one of those that the cuts are made of") as u32
        };
        laid_over(grid, window).map(index_of).collect()
    }
}

/// The cuts of a grid when it covers a window of the message.
fn laid_over<'a>(grid: &'a Grid, window: &'a Window) -> impl Iterator<Item = Fraction> + 'a {
    (0..=grid.chunks()).map(move |index| {
        let cut = match grid {
            Grid::Equal(chunks) | Grid::Blocks(chunks) => share(index, *chunks),
            Grid::Cuts(cuts) => cuts[index as usize],
        };
        within(window, cut)
    })
}

/// The share of the message at this share of a window.
pub(crate) fn within(window: &Window, cut: Fraction) -> Fraction {
    let parts = |fraction: Fraction| {
        (
            u128::from(fraction.numerator),
            u128::from(fraction.denominator),
        )
    };
    let (cut_over, cut_under) = parts(cut);
    let (mut start, mut end) = (parts(window.start), parts(window.end));
    if start.1 != end.1 {
        let under = start.1 * end.1;
        start = (start.0 * end.1, under);
        end = (end.0 * (under / end.1), under);
    }
    nearest(
        start.0 * cut_under + (end.0 - start.0) * cut_over,
        start.1 * cut_under,
    )
}

/// A fraction whose terms fit 32 bits. Where cuts of many sizes are nested so deeply that none is exact, the next one below
/// does as well: it moves a boundary between two ranks' shares by less than a billionth of the message.
fn nearest(numerator: u128, denominator: u128) -> Fraction {
    let fits = |value: u128| u32::try_from(value).ok();
    if let (Some(numerator), Some(denominator)) = (fits(numerator), fits(denominator)) {
        return share(numerator, denominator);
    }
    let divisor = greatest_common_divisor(numerator, denominator);
    match (fits(numerator / divisor), fits(denominator / divisor)) {
        (Some(numerator), Some(denominator)) => share(numerator, denominator),
        _ => {
            let scaled = numerator * u128::from(u32::MAX) / denominator;
            share(scaled as u32, u32::MAX)
        }
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// Compares two shares.
pub(crate) fn compare(a: &Fraction, b: &Fraction) -> Ordering {
    let product = |x: u32, y: u32| u64::from(x) * u64::from(y);
    product(a.numerator, b.denominator).cmp(&product(b.numerator, a.denominator))
}

#[cfg(test)]
mod tests {
    use super::{Cuts, WHOLE, compare, share, within};
    use std::cmp::Ordering;
    use weft_schedule::Grid;

    #[test]
    fn equal_grids_stay_equal() {
        let halves = [share(0, 2)..share(1, 2), share(1, 2)..share(2, 2)];
        let (three, two) = (Grid::Equal(3), Grid::Equal(2));
        let cuts = Cuts::of([
            (&two, WHOLE),
            (&three, halves[0].clone()),
            (&three, halves[1].clone()),
        ]);
        assert_eq!(cuts.grid(), Grid::Equal(6));
        assert_eq!(cuts.starts(&two, &WHOLE), [0, 3, 6]);
        assert_eq!(cuts.starts(&three, &halves[1]), [3, 4, 5, 6]);
    }

    #[test]
    fn thirds_and_halves_share_a_grid() {
        let (two, three) = (Grid::Equal(2), Grid::Equal(3));
        let cuts = Cuts::of([(&two, WHOLE), (&three, WHOLE)]);
        let expected = [(0, 1), (1, 3), (1, 2), (2, 3), (1, 1)].map(|(n, d)| share(n, d));
        let Grid::Cuts(found) = cuts.grid() else {
            panic!("not equal")
        };
        assert!(
            found
                .iter()
                .zip(&expected)
                .all(|(a, b)| compare(a, b) == Ordering::Equal)
        );
        assert_eq!(cuts.starts(&two, &WHOLE), [0, 2, 4]);
        assert_eq!(cuts.starts(&three, &WHOLE), [0, 1, 3, 4]);
    }

    #[test]
    fn shares_that_do_not_fit_are_rounded_down() {
        let odd = share(1, 65_537)..share(65_520, 65_521);
        let cut = within(&odd, share(1, 65_519));
        let exact = 1.0 / 65_537.0 + (65_520.0 / 65_521.0 - 1.0 / 65_537.0) / 65_519.0;
        let found = f64::from(cut.numerator) / f64::from(cut.denominator);
        assert!(found <= exact && exact - found < 1e-9, "{cut:?}");
    }
}
