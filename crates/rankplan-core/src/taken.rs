//! Accelerators in the order in which they were taken.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::chunks::Chunks;
use crate::diagnostic::Diagnostic;
use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::rank_set::{RankRange, RankSet, append};

/// Accelerators in the order taken, counted node by node over the cluster, as ranges: whole nodes in a row are one range.
///
/// An accelerator may occur several times, where devices are given by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Taken {
    /// A range is merged with the one before if it continues that.
    ranges: Vec<RankRange>,
    /// By range, the number of accelerators before it.
    before: Vec<u32>,
    count: u32,
}

/// A chunk whose first and last accelerators are on two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The index of the chunk.
    pub chunk: u32,
    /// The node of its first accelerator.
    pub first: NodeRank,
    /// The node of its last accelerator.
    pub last: NodeRank,
}

impl Taken {
    /// These ranges in this order; `None` if they have more accelerators than 32 bits count.
    pub fn from_ranges(ranges: impl IntoIterator<Item = RankRange>) -> Option<Self> {
        let mut merged = Vec::new();
        for range in ranges {
            append(&mut merged, 0, range);
        }
        let mut before = Vec::with_capacity(merged.len());
        let mut count = 0_u32;
        for range in &merged {
            before.push(count);
            count = count.checked_add(range.len())?;
        }
        Some(Taken { ranges: merged, before, count })
    }

    /// The ranks of a set again and again, until there are so many: nodes that processes take in turn.
    ///
    /// `None` for an empty set.
    pub fn in_turn(ranks: &RankSet, count: u32) -> Option<Self> {
        if ranks.is_empty() {
            return None;
        }
        let rounds = count / ranks.len();
        let rest = ranks.slice(0..count % ranks.len());
        let whole = (0..rounds).flat_map(|_| ranks.ranges());
        Self::from_ranges(whole.chain(rest.ranges()).copied())
    }

    /// The ranges, in the order taken.
    pub fn ranges(&self) -> &[RankRange] {
        &self.ranges
    }

    /// The number of accelerators.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The accelerators of this and then those of the other; `None` if they are too many.
    pub fn then(&self, other: &Self) -> Option<Self> {
        Self::from_ranges(self.ranges.iter().chain(&other.ranges).copied())
    }

    /// The accelerators at these positions; those after the last one are left out.
    #[must_use]
    pub fn slice(&self, positions: Range<u32>) -> Self {
        let end = positions.end.min(self.count);
        let from = self.before.partition_point(|&before| before <= positions.start).saturating_sub(1);
        let cut = |index: usize| {
            let (range, before) = (self.ranges[index], self.before[index]);
            let skipped = positions.start.saturating_sub(before);
            let kept = end.saturating_sub(before).min(range.len()).checked_sub(skipped)?;
            RankRange::counted(range.first() + skipped, kept)
        };
        let inside = (from..self.ranges.len()).take_while(|&index| self.before[index] < end);
        Self::from_ranges(inside.filter_map(cut)).unwrap_or_default()
    }

    /// The accelerators, each once.
    pub fn accelerators(&self) -> RankSet {
        RankSet::from_ranges(self.ranges.iter().copied())
    }

    /// By list, how many lists have the accelerator that most lists have of those in it.
    ///
    /// The ends of all ranges cut the accelerators into parts that have the same lists; each list looks at its parts.
    pub fn most_users(lists: &[Self]) -> Vec<u32> {
        let sets: Vec<RankSet> = lists.iter().map(Self::accelerators).collect();
        let mut ends: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for range in sets.iter().flat_map(RankSet::ranges) {
            ends.entry(range.first()).or_default().0 += 1;
            ends.entry(range.last() + 1).or_default().1 += 1;
        }
        let mut users = 0;
        let parts: Vec<(u32, u32)> = ends
            .into_iter()
            .map(|(start, (more, fewer))| {
                users = users + more - fewer;
                (start, users)
            })
            .collect();
        let most = |set: &RankSet| {
            let users_in = |range: &RankRange| {
                let from = parts.partition_point(|&(start, _)| start < range.first());
                let inside = parts[from..].iter().take_while(|&&(start, _)| start <= range.last());
                inside.map(|&(_, users)| users).max()
            };
            set.ranges().iter().filter_map(users_in).max().unwrap_or(0)
        };
        sets.iter().map(most).collect()
    }

    /// The rule of processes that have so many of them each, in this order.
    ///
    /// # Errors
    /// The faults of [`Chunks::new`].
    pub fn chunks(&self, each: u32) -> Result<Chunks, Diagnostic> {
        Chunks::new(self.ranges.iter().copied(), each)
    }

    /// The accelerators as stretches on one node: the node, and the number of accelerators there in a row.
    pub fn stretches<'a>(&'a self, inventory: &'a Inventory) -> impl Iterator<Item = (NodeRank, u32)> + use<'a> {
        self.ranges.iter().flat_map(|&range| inventory.nodes_of(range)).map(|(node, local)| (node, local.len()))
    }

    /// The accelerators of the node with most of all that they are on; 0 if there are none.
    pub fn largest_node(&self, inventory: &Inventory) -> u32 {
        self.stretches(inventory).map(|(node, _)| inventory.num_accelerators(node)).max().unwrap_or(0)
    }

    /// The nodes that they are on.
    pub fn used_nodes(&self, inventory: &Inventory) -> RankSet {
        // The nodes between the first and the last one of a range may have no accelerators.
        self.stretches(inventory).map(|(NodeRank(node), _)| node).collect()
    }

    /// The node of the first accelerator of each chunk of `each`.
    pub fn nodes<'a>(&'a self, inventory: &'a Inventory, each: u32) -> impl Iterator<Item = NodeRank> + use<'a> {
        let each = each.max(1);
        self.stretches(inventory)
            .scan(0_u32, move |position, (node, count)| {
                // Chunks start at multiples of their size.
                let starts = (*position + count).div_ceil(each) - position.div_ceil(each);
                *position += count;
                Some((node, starts))
            })
            .flat_map(|(node, starts)| (0..starts).map(move |_| node))
    }

    /// The nodes on which a chunk of `each` starts.
    pub fn starting_nodes(&self, inventory: &Inventory, each: u32) -> RankSet {
        self.nodes(inventory, each).map(|NodeRank(node)| node).collect()
    }

    /// The first chunk of `each` accelerators that starts on one node and ends on another. An incomplete chunk at the end
    /// does not count.
    ///
    /// Chunks are torn where a node ends inside of them, so only the ends of nodes are looked at.
    pub fn torn(&self, inventory: &Inventory, each: u32) -> Option<Torn> {
        let each = u64::from(each.max(1));
        let mut position = 0;
        // The chunk that the end of a node has cut, and the node that it starts on.
        let mut cut: Option<(u64, NodeRank)> = None;
        for (node, count) in self.stretches(inventory) {
            let start = position;
            position += u64::from(count);
            if let Some((chunk, first)) = cut {
                if position < (chunk + 1) * each {
                    continue;
                }
                if first != node {
                    return Some(Torn { chunk: chunk as u32, first, last: node });
                }
            }
            let last = position / each;
            cut = (last * each >= start && last * each < position).then_some((last, node));
        }
        None
    }
}
