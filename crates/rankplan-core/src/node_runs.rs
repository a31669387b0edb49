//! The node of each of many things in a row, as runs: nodes in a row with as many each.

use std::ops::Range;

use crate::ids::NodeRank;

/// The node of each bundle of placement groups, in their order. Equal lists of nodes have equal runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeRuns {
    runs: Vec<NodeRun>,
    /// By run, the number of bundles before it.
    before: Vec<u32>,
    len: u32,
}

/// Nodes in a row with as many bundles each, one node after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeRun {
    /// The first node.
    pub first: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// The bundles of each.
    pub each: u32,
}

impl NodeRun {
    fn len(self) -> u32 {
        self.nodes * self.each
    }

    fn last(self) -> u32 {
        self.first + (self.nodes - 1)
    }
}

impl NodeRuns {
    /// The number of bundles.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The runs: neighbours differ in the number of bundles, or are not next to each other.
    pub fn runs(&self) -> &[NodeRun] {
        &self.runs
    }

    /// Add so many bundles on a node.
    ///
    /// Equal nodes in a row are joined first, and then nodes that follow each other with as many bundles, as far left as
    /// possible. So the runs do not depend on the parts in which bundles were added.
    pub fn push(&mut self, node: u32, count: u32) {
        if count == 0 {
            return;
        }
        let Some(last) = self.pop_if(|last| last.last() == node) else {
            self.add(node, count);
            return;
        };
        if last.nodes > 1 {
            self.append(NodeRun { nodes: last.nodes - 1, ..last });
        }
        self.add(node, last.each + count);
    }

    /// Add bundles on a node that is not the last one.
    fn add(&mut self, node: u32, each: u32) {
        let continued = self.pop_if(|last| last.each == each && last.last().checked_add(1) == Some(node));
        self.append(match continued {
            Some(last) => NodeRun { nodes: last.nodes + 1, ..last },
            None => NodeRun { first: node, nodes: 1, each },
        });
    }

    fn append(&mut self, run: NodeRun) {
        self.before.push(self.len);
        self.runs.push(run);
        self.len += run.len();
    }

    fn pop_if(&mut self, suits: impl FnOnce(&NodeRun) -> bool) -> Option<NodeRun> {
        let last = self.runs.pop_if(|last| suits(last))?;
        self.before.pop();
        self.len -= last.len();
        Some(last)
    }

    /// Add the bundles of a run.
    pub fn push_run(&mut self, run: NodeRun) {
        if run.nodes == 0 || run.each == 0 {
            return;
        }
        self.push(run.first, run.each);
        if run.nodes > 1 {
            // The second node is the last one of a run with as many bundles each, which the others continue.
            self.push(run.first + 1, run.each);
            if let Some(last) = self.pop_if(|_| true) {
                self.append(NodeRun { nodes: last.nodes + run.nodes - 2, ..last });
            }
        }
    }

    /// Add the bundles of another list.
    pub fn extend(&mut self, other: &Self) {
        for &run in &other.runs {
            self.push_run(run);
        }
    }

    /// The node of the bundle at this position.
    pub fn get(&self, position: u32) -> Option<NodeRank> {
        let at = self.before.partition_point(|&before| before <= position).checked_sub(1)?;
        let run = self.runs[at];
        let node = (position - self.before[at]) / run.each;
        (node < run.nodes).then(|| NodeRank(run.first + node))
    }

    /// The bundles at these positions; those after the last one are left out.
    #[must_use]
    pub fn slice(&self, positions: Range<u32>) -> Self {
        let end = positions.end.min(self.len);
        let from = self.before.partition_point(|&before| before <= positions.start).saturating_sub(1);
        let mut found = NodeRuns::default();
        for (run, &before) in
            self.runs[from..].iter().zip(&self.before[from..]).take_while(|(_, before)| **before < end)
        {
            let (start, stop) = (positions.start.saturating_sub(before), (end - before).min(run.len()));
            if start >= stop {
                continue;
            }
            // A part of the first node, whole nodes, and a part of the last one.
            let (first, last) = (start / run.each, (stop - 1) / run.each);
            if first == last {
                found.push(run.first + first, stop - start);
                continue;
            }
            found.push(run.first + first, (first + 1) * run.each - start);
            found.push_run(NodeRun { first: run.first + first + 1, nodes: last - first - 1, each: run.each });
            found.push(run.first + last, stop - last * run.each);
        }
        found
    }

    /// The node of each bundle.
    pub fn iter(&self) -> impl Iterator<Item = NodeRank> + use<'_> {
        self.stretches().flat_map(|(node, count)| std::iter::repeat_n(node, count as usize))
    }

    /// The nodes with the number of bundles in a row on each.
    pub fn stretches(&self) -> impl Iterator<Item = (NodeRank, u32)> + use<'_> {
        self.runs.iter().flat_map(|run| (run.first..=run.last()).map(|node| (NodeRank(node), run.each)))
    }
}
