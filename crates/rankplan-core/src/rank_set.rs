//! Sets of ranks, stored as ranges.

use std::cmp::Ordering;
use std::fmt::{Display, Formatter, Result};
use std::ops::Range;

use crate::ids::MAX_RANK;

/// The ranks `first..=last`; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankRange {
    first: u32,
    last: u32,
}

impl RankRange {
    /// The range, unless it is empty or ends after [`MAX_RANK`].
    pub fn new(first: u32, last: u32) -> Option<Self> {
        (first <= last && last <= MAX_RANK).then_some(RankRange { first, last })
    }

    /// `count` ranks starting at `first`.
    pub fn counted(first: u32, count: u32) -> Option<Self> {
        Self::new(first, first.checked_add(count.checked_sub(1)?)?)
    }

    /// The lowest rank.
    pub fn first(self) -> u32 {
        self.first
    }

    /// The highest rank.
    pub fn last(self) -> u32 {
        self.last
    }

    /// The number of ranks, at least 1; it fits because the largest rank is `u32::MAX - 1`.
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(self) -> u32 {
        self.last - self.first + 1
    }

    /// Take in a range that starts no earlier, unless there is a gap between the two. Returns whether it did.
    fn joins(&mut self, range: RankRange) -> bool {
        let joins = range.first <= self.last.saturating_add(1);
        if joins {
            self.last = self.last.max(range.last);
        }
        joins
    }
}

impl Display for RankRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// Append a range to a list of ranges in any order, merged with the last one of `ranges[from..]` if it continues that.
pub(crate) fn append(ranges: &mut Vec<RankRange>, from: usize, range: RankRange) {
    match ranges[from..].last_mut() {
        Some(last) if last.last + 1 == range.first => last.last = range.last,
        _ => ranges.push(range),
    }
}

/// The number of ranks before each range but the first.
fn counts(ranges: &[RankRange]) -> Vec<u32> {
    let Some((_, but_last)) = ranges.split_last() else { return Vec::new() };
    let mut total = 0;
    let sums = but_last.iter().map(|range| {
        total += range.len();
        total
    });
    sums.collect()
}

/// A set of ranks: ascending ranges with a gap between any two.
///
/// `before[i]` is the number of ranks before range `i + 1`, so that [`RankSet::nth`] and [`RankSet::position`] are binary
/// searches, and one range, as many sets have, needs no second list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RankSet {
    ranges: Vec<RankRange>,
    before: Vec<u32>,
}

impl RankSet {
    /// The union of ranges in any order.
    pub fn from_ranges(ranges: impl IntoIterator<Item = RankRange>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        if !ranges.is_sorted() {
            // The stable sort merges ascending runs, and the union of two sets consists of two.
            ranges.sort();
        }
        ranges.dedup_by(|range, last| last.joins(*range));
        RankSet { before: counts(&ranges), ranges }
    }

    /// The ranks `0..count`.
    pub fn first_ranks(count: u32) -> Self {
        Self::from_ranges(RankRange::counted(0, count))
    }

    /// Add a range that starts no earlier than the last one.
    fn push(&mut self, range: RankRange) {
        if self.ranges.last_mut().is_some_and(|last| last.joins(range)) {
            return;
        }
        if !self.ranges.is_empty() {
            self.before.push(self.len());
        }
        self.ranges.push(range);
    }

    /// The number of ranks before a range.
    fn count_before(&self, index: usize) -> u32 {
        index.checked_sub(1).map_or(0, |index| self.before[index])
    }

    /// The ranges, ascending, with a gap between any two.
    pub fn ranges(&self) -> &[RankRange] {
        &self.ranges
    }

    /// The number of ranks.
    pub fn len(&self) -> u32 {
        self.ranges.last().map_or(0, |range| self.before.last().unwrap_or(&0) + range.len())
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The rank at this position; positions are counted from 0 in ascending order.
    pub fn nth(&self, position: u32) -> Option<u32> {
        let at = self.before.partition_point(|&before| before <= position);
        let offset = position - self.count_before(at);
        self.ranges.get(at).filter(|range| offset < range.len()).map(|range| range.first + offset)
    }

    /// The highest rank.
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|range| range.last)
    }

    /// The position of a rank: the inverse of [`RankSet::nth`].
    pub fn position(&self, rank: u32) -> Option<u32> {
        let at = self.ranges.partition_point(|range| range.first <= rank).checked_sub(1)?;
        (rank <= self.ranges[at].last).then(|| self.count_before(at) + (rank - self.ranges[at].first))
    }

    /// Whether the set contains the rank.
    pub fn contains(&self, rank: u32) -> bool {
        self.position(rank).is_some()
    }

    /// The ranks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().flat_map(|range| range.first..=range.last)
    }

    /// The ranks of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges(self.ranges.iter().chain(&other.ranges).copied())
    }

    /// The ranks of any of the sets.
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::from_ranges(sets.into_iter().flat_map(|set| &set.ranges).copied())
    }

    /// The ranks of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut set = RankSet::default();
        for range in self.overlaps(other) {
            set.push(range);
        }
        set
    }

    /// Whether no rank is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.overlaps(other).next().is_none()
    }

    /// The ranges of the intersection, ascending.
    fn overlaps(&self, other: &Self) -> impl Iterator<Item = RankRange> {
        // Few ranges within many are found without looking at all of these.
        let [mut i, mut j] = [(self, other), (other, self)].map(|(one, other)| {
            other.ranges.first().map_or(0, |first| one.ranges.partition_point(|range| range.last < first.first))
        });
        std::iter::from_fn(move || {
            while let (Some(a), Some(b)) = (self.ranges.get(i), other.ranges.get(j)) {
                if a.last < b.last {
                    i += 1;
                } else {
                    j += 1;
                }
                let overlap = RankRange::new(a.first.max(b.first), a.last.min(b.last));
                if overlap.is_some() {
                    return overlap;
                }
            }
            None
        })
    }

    /// The ranks of a range that the set lacks, as ranges, ascending.
    pub(crate) fn gaps(&self, range: RankRange) -> impl Iterator<Item = RankRange> + use<'_> {
        let mut next = Some(range.first);
        let mut index = self.ranges.partition_point(|cut| cut.last < range.first);
        std::iter::from_fn(move || {
            loop {
                let first = next.filter(|&first| first <= range.last)?;
                let cut = self.ranges.get(index).filter(|cut| cut.first <= range.last);
                next = cut.map(|cut| cut.last + 1);
                index += 1;
                let last = cut.map_or(Some(range.last), |cut| cut.first.checked_sub(1));
                if let Some(gap) = last.and_then(|last| RankRange::new(first, last)) {
                    return Some(gap);
                }
            }
        })
    }

    /// The ranks at these positions, which are counted as in [`RankSet::nth`]; those after the last rank are left out.
    #[must_use]
    pub fn slice(&self, positions: Range<u32>) -> Self {
        let end = positions.end.min(self.len());
        let ends = (self.nth(positions.start), end.checked_sub(1).and_then(|last| self.nth(last)));
        let (Some(first), Some(last)) = ends else { return RankSet::default() };
        self.intersection(&Self::from_ranges(RankRange::new(first, last)))
    }

    /// The ranks of exactly one of the sets.
    #[must_use]
    pub fn symmetric_difference(&self, other: &Self) -> Self {
        self.difference(other).union(&other.difference(self))
    }

    /// The ranks of this set that the other does not contain.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let (mut set, mut j) = (RankSet::default(), 0);
        for range in &self.ranges {
            let mut first = range.first;
            while other.ranges.get(j).is_some_and(|cut| cut.last < first) {
                j += 1;
            }
            let mut k = j;
            while let Some(cut) = other.ranges.get(k).filter(|cut| cut.first <= range.last) {
                if let Some(kept) = cut.first.checked_sub(1).and_then(|last| RankRange::new(first, last)) {
                    set.push(kept);
                }
                first = cut.last + 1;
                k += 1;
            }
            j = k.saturating_sub(1).max(j);
            if let Some(kept) = RankRange::new(first, range.last) {
                set.push(kept);
            }
        }
        set
    }
}

impl PartialOrd for RankSet {
    /// The order of inclusion: a set is less than another one that has all its ranks and more.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        // Ranges have gaps between them, so each range of a subset lies within one range of the other set.
        let within = |one: &Self, other: &Self| one.overlaps(other).eq(one.ranges.iter().copied());
        let order = self.len().cmp(&other.len());
        let holds = match order {
            Ordering::Less => within(self, other),
            Ordering::Equal => self == other,
            Ordering::Greater => within(other, self),
        };
        holds.then_some(order)
    }
}

impl FromIterator<u32> for RankSet {
    /// The set of these ranks, without those above [`MAX_RANK`].
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut ranges = Vec::new();
        for range in ranks.into_iter().filter_map(|rank| RankRange::new(rank, rank)) {
            append(&mut ranges, 0, range); // most ranks follow each other
        }
        Self::from_ranges(ranges)
    }
}

impl Display for RankSet {
    /// The canonical text: ascending and merged, `0-3,7`; empty for the empty set.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write_ranges(f, &self.ranges)
    }
}

/// Write ranges, separated by commas.
pub(crate) fn write_ranges(f: &mut Formatter<'_>, ranges: &[RankRange]) -> Result {
    for (i, range) in ranges.iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        range.fmt(f)?;
    }
    Ok(())
}
