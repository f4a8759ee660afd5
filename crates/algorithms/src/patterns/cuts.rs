//! Grids with the cuts of several parts: exact shares of the message, and the start of a part's
//! chunks among them.

use std::cmp::Ordering;
use std::ops::Range;

use weft_schedule::{Fraction, Grid};

/// From which share of the message to which.
pub(crate) type ShareRange = Range<Fraction>;

/// The whole message.
pub(crate) const WHOLE: ShareRange = share(0, 1)..share(1, 1);

/// The share `numerator / denominator`.
pub(crate) const fn share(numerator: u32, denominator: u32) -> Fraction {
    Fraction {
        numerator,
        denominator,
    }
}

/// The cuts of a grid that all parts can be laid over.
pub(crate) enum Cuts {
    /// This number of equal chunks.
    Even(u32),
    /// The cuts themselves, ascending from 0 to 1.
    Listed(Vec<Fraction>),
}

/// Where each chunk of a part begins among those of the whole grid.
pub(crate) enum Starts {
    /// All its chunks have the same width.
    Even { first: u32, width: u32, chunks: u32 },
    /// By chunk; and the end of the last.
    Listed(Vec<u32>),
}

impl Cuts {
    /// All cuts that these grids have when each is laid over its window.
    pub(crate) fn of<'a>(grids: impl IntoIterator<Item = (&'a Grid, ShareRange)>) -> Self {
        let grids: Vec<(&Grid, ShareRange)> = grids.into_iter().collect();
        if let Some(chunks) = even_chunks(&grids) {
            return Cuts::Even(chunks);
        }
        let mut ascending: Vec<Fraction> = vec![WHOLE.start, WHOLE.end];
        for (grid, window) in &grids {
            ascending.extend(laid_over(grid, window));
        }
        ascending.sort_by(compare);
        ascending.dedup_by(|a, b| compare(a, b) == Ordering::Equal);
        let chunks = ascending.len() as u32 - 1;
        let expected = (0..=chunks).map(|index| share(index, chunks));
        let mut pairs = ascending.iter().zip(expected);
        match pairs.all(|(cut, share)| compare(cut, &share) == Ordering::Equal) {
            true => Cuts::Even(chunks),
            false => Cuts::Listed(ascending),
        }
    }

    /// The grid with these cuts.
    pub(crate) fn grid(&self) -> Grid {
        match self {
            Cuts::Even(chunks) => Grid::Equal(*chunks),
            Cuts::Listed(cuts) => Grid::Cuts(cuts.clone()),
        }
    }

    /// The cuts themselves, ascending from 0 to 1.
    pub(crate) fn into_fractions(self) -> Vec<Fraction> {
        match self {
            Cuts::Even(chunks) => (0..=chunks).map(|index| share(index, chunks)).collect(),
            Cuts::Listed(cuts) => cuts,
        }
    }

    /// The number of chunks.
    pub(crate) fn chunks(&self) -> u32 {
        match self {
            Cuts::Even(chunks) => *chunks,
            Cuts::Listed(cuts) => cuts.len() as u32 - 1,
        }
    }

    /// Where each chunk of a grid begins that is laid over a window. The cuts must be those of this
    /// grid among others.
    pub(crate) fn starts(&self, grid: &Grid, window: &ShareRange) -> Starts {
        match (self, grid) {
            (Cuts::Even(_), Grid::Equal(chunks) | Grid::Blocks(chunks)) => {
                let [first, end] = [window.start, window.end].map(|cut| self.index_of(cut));
                Starts::Even {
                    first,
                    width: (end - first) / chunks,
                    chunks: *chunks,
                }
            }
            _ => Starts::Listed(
                laid_over(grid, window)
                    .map(|cut| self.index_of(cut))
                    .collect(),
            ),
        }
    }

    fn index_of(&self, cut: Fraction) -> u32 {
        match self {
            Cuts::Even(chunks) => cut.of(u64::from(*chunks)) as u32,
            Cuts::Listed(cuts) => {
                let found = cuts.binary_search_by(|own| compare(own, &cut));
                found.expect("the grid is one of those that the cuts are made of") as u32
            }
        }
    }
}

impl Starts {
    /// Where a chunk begins; the chunk behind the last begins where that one ends.
    pub(crate) fn of(&self, chunk: u32) -> u32 {
        match self {
            Starts::Even { first, width, .. } => first + chunk * width,
            Starts::Listed(starts) => starts[chunk as usize],
        }
    }

    /// The greatest width of `of` consecutive chunks; 0 if there are fewer.
    pub(crate) fn widest(&self, of: u32) -> u32 {
        match self {
            Starts::Even { width, chunks, .. } if of <= *chunks => of * width,
            Starts::Even { .. } => 0,
            Starts::Listed(starts) => {
                let ranges = starts.windows(of as usize + 1);
                let widths = ranges.map(|range| range[range.len() - 1] - range[0]);
                widths.max().unwrap_or_default()
            }
        }
    }
}

/// The number of chunks if all cuts together are evenly spaced, and that is known without listing
/// them: the cuts of all grids are at multiples of the finest spacing, and where it is used covers
/// everything.
fn even_chunks(grids: &[(&Grid, ShareRange)]) -> Option<u32> {
    let mut denominator = 1;
    let mut spacings = Vec::with_capacity(grids.len());
    for (grid, window) in grids {
        let (Grid::Equal(chunks) | Grid::Blocks(chunks)) = grid else {
            return None;
        };
        let (start, end) = (window.start, window.end);
        let [over, under] = [start, end].map(|cut| u128::from(cut.denominator));
        let width = u128::from(end.numerator) * over - u128::from(start.numerator) * under;
        let spacing = reduced(width, over * under * u128::from(*chunks));
        let (_, of_start) = reduced(u128::from(start.numerator), over);
        for other in [spacing.1, of_start] {
            denominator *= other / greatest_common_divisor(denominator, other);
            if denominator > u128::from(u32::MAX) {
                return None;
            }
        }
        spacings.push(spacing);
    }
    let chunks = denominator as u32;
    let index = |cut: Fraction| cut.of(u64::from(chunks));
    let finest = grids
        .iter()
        .zip(spacings)
        .filter(|(_, s)| *s == (1, denominator));
    let mut covered: Vec<[u64; 2]> = finest
        .map(|((_, window), _)| [index(window.start), index(window.end)])
        .collect();
    covered.sort_unstable();
    let end = covered
        .iter()
        .try_fold(0, |end, [from, to]| (*from <= end).then_some(end.max(*to)));
    (end == Some(u64::from(chunks))).then_some(chunks)
}

fn reduced(numerator: u128, denominator: u128) -> (u128, u128) {
    let divisor = greatest_common_divisor(numerator, denominator);
    (numerator / divisor, denominator / divisor)
}

/// The cuts of a grid when it covers a window of the message.
fn laid_over<'a>(grid: &'a Grid, window: &'a ShareRange) -> impl Iterator<Item = Fraction> + 'a {
    (0..=grid.chunks()).map(move |index| {
        let cut = match grid {
            Grid::Equal(chunks) | Grid::Blocks(chunks) => share(index, *chunks),
            Grid::Cuts(cuts) => cuts[index as usize],
        };
        within(window, cut)
    })
}

/// The share of the message at this share of a window.
pub(crate) fn within(window: &ShareRange, cut: Fraction) -> Fraction {
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

/// A fraction whose terms fit 32 bits. Where cuts of many sizes are nested so deeply that none is
/// exact, the next one below does as well: it moves a boundary between two ranks' shares by less
/// than a billionth of the message.
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
    use super::{Cuts, Starts, WHOLE, compare, even_chunks, share, within};
    use std::cmp::Ordering;
    use weft_schedule::Grid;

    fn listed(starts: &Starts, chunks: u32) -> Vec<u32> {
        (0..=chunks).map(|chunk| starts.of(chunk)).collect()
    }

    /// Even cuts are detected without listing them exactly as with listing them.
    #[test]
    fn even_cuts_are_found_without_listing_them() {
        for (parts, chunks, whole) in
            (1..7).flat_map(|p| (1..13).flat_map(move |c| (1..13).map(move |w| (p, c, w))))
        {
            let (within_part, of_whole) = (Grid::Equal(chunks), Grid::Equal(whole));
            let windows = (0..parts).map(|part| share(part, parts)..share(part + 1, parts));
            let mut grids: Vec<_> = windows.map(|window| (&within_part, window)).collect();
            grids.push((&of_whole, WHOLE));
            let mut cuts = vec![(0, 1), (1, 1)];
            cuts.extend((0..=parts * chunks).map(|index| (index, parts * chunks)));
            cuts.extend((0..=whole).map(|index| (index, whole)));
            cuts.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)));
            cuts.dedup_by(|a, b| a.0 * b.1 == b.0 * a.1);
            let all = cuts.len() as u32 - 1;
            let even = (0..)
                .zip(&cuts)
                .all(|(index, cut)| index * cut.1 == cut.0 * all);
            assert_eq!(
                even_chunks(&grids),
                even.then_some(all),
                "{parts} {chunks} {whole}"
            );
            let grid = Cuts::of(grids).grid();
            assert_eq!((grid.chunks(), matches!(grid, Grid::Equal(_))), (all, even));
        }
    }

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
        assert_eq!(listed(&cuts.starts(&two, &WHOLE), 2), [0, 3, 6]);
        assert_eq!(listed(&cuts.starts(&three, &halves[1]), 3), [3, 4, 5, 6]);
        assert_eq!(cuts.starts(&three, &halves[1]).widest(2), 2);
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
        assert_eq!(listed(&cuts.starts(&two, &WHOLE), 2), [0, 2, 4]);
        assert_eq!(listed(&cuts.starts(&three, &WHOLE), 3), [0, 1, 3, 4]);
        assert_eq!(cuts.starts(&two, &WHOLE).widest(1), 2);
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
