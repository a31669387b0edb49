//! Ranges of nodes, and the slots on each of their nodes.

use std::ops::Range;

use crate::rank_set::{RankRange, RankSet};

/// Consecutive slots on one node, repeated on the following nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRun {
    pub first_slot: u32,
    /// On each node.
    pub slots: u32,
    pub node: u32,
    pub nodes: u32,
}

impl NodeRun {
    pub fn end(self) -> u32 {
        self.first_slot + self.slots * self.nodes
    }

    /// The parts of a run whose nodes are in a set, or are not, in order.
    pub fn parts(self, set: &RankSet) -> Vec<(NodeRun, bool)> {
        let part = |(nodes, in_set): (Range<u32>, bool)| {
            let first_slot = self.first_slot + (nodes.start - self.node) * self.slots;
            let part = NodeRun { first_slot, slots: self.slots, node: nodes.start, nodes: nodes.end - nodes.start };
            (part, in_set)
        };
        divided(self.node..self.node + self.nodes, set).into_iter().map(part).collect()
    }
}

/// Join neighbours on one node, and those that continue with as many slots on the next node.
pub(crate) fn joined(parts: impl Iterator<Item = NodeRun>) -> Vec<NodeRun> {
    let mut runs: Vec<NodeRun> = Vec::new();
    for mut new in parts {
        let slots = new.slots;
        if let Some(last) = runs.pop_if(|last| last.node + last.nodes - 1 == new.node) {
            if last.nodes > 1 {
                runs.push(NodeRun { nodes: last.nodes - 1, ..last });
            }
            let first_slot = new.first_slot - last.slots;
            runs.push(NodeRun { first_slot, slots: last.slots + slots, node: new.node, nodes: 1 });
            new = NodeRun { first_slot: new.first_slot + slots, slots, node: new.node + 1, nodes: new.nodes - 1 };
        }
        match runs.last_mut() {
            _ if new.nodes == 0 => {}
            Some(last) if last.slots == slots && last.node + last.nodes == new.node => last.nodes += new.nodes,
            _ => runs.push(new),
        }
    }
    runs
}

/// The nodes in two or more of these ranges, each a first node and a number of nodes.
pub(crate) fn overlap(ranges: impl Iterator<Item = (u32, u32)>) -> RankSet {
    let mut sorted: Vec<_> = ranges.collect();
    sorted.sort_unstable();
    let (mut end, mut twice) = (0, Vec::new());
    for (first, count) in sorted {
        twice.extend(RankRange::counted(first, end.min(first + count).saturating_sub(first)));
        end = end.max(first + count);
    }
    RankSet::from_ranges(twice)
}

/// Cut a range of nodes where a set starts or ends; say of each part whether it is in the set.
pub(crate) fn divided(nodes: Range<u32>, set: &RankSet) -> Vec<(Range<u32>, bool)> {
    let (mut parts, mut at) = (Vec::new(), nodes.start);
    let inside = RankSet::from_ranges(RankRange::counted(nodes.start, nodes.end - nodes.start)).intersection(set);
    for range in inside.ranges() {
        parts.push((at..range.first(), false));
        parts.push((range.first()..range.last() + 1, true));
        at = range.last() + 1;
    }
    parts.push((at..nodes.end, false));
    parts.retain(|(part, _)| !part.is_empty());
    parts
}

/// The nodes of a set among `count` nodes from `first` on.
pub(crate) fn common(nodes: &RankSet, first: u32, count: u32) -> impl Iterator<Item = u32> {
    divided(first..first + count, nodes).into_iter().filter(|(_, inside)| *inside).flat_map(|(part, _)| part)
}
