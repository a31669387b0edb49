//! Where slots are: by node, or by the domains of a level of the network.

use crate::groups::node_runs::{NodeRun, joined, overlap};
use crate::ids::NodeRank;
use crate::rank_set::RankSet;

/// The domains of one level: for each node, the number of its domain, stored as runs of equal numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domains {
    /// The first node of each run, ascending.
    starts: Vec<u32>,
    /// By run, the domain.
    ids: Vec<u32>,
    /// The number of nodes.
    nodes: u32,
}

impl Domains {
    /// The domain of each node, in node-rank order.
    pub fn new(by_node: impl IntoIterator<Item = u32>) -> Self {
        let mut domains = Domains { starts: Vec::new(), ids: Vec::new(), nodes: 0 };
        for id in by_node {
            if domains.ids.last() != Some(&id) {
                domains.starts.push(domains.nodes);
                domains.ids.push(id);
            }
            domains.nodes += 1;
        }
        domains
    }

    /// The domain of a node.
    pub fn of(&self, node: NodeRank) -> Option<u32> {
        let run = self.starts.partition_point(|&start| start <= node.0).checked_sub(1)?;
        self.ids.get(run).copied().filter(|_| node.0 < self.nodes)
    }

    /// The slots of a run of nodes, cut where the domain changes. Nodes without a domain are left out.
    fn cut(&self, run: NodeRun) -> impl Iterator<Item = NodeRun> {
        let end = run.node + run.nodes;
        let first = self.starts.partition_point(|&start| start <= run.node).saturating_sub(1);
        (first..self.starts.len()).take_while(move |&index| self.starts[index] < end).map(move |index| {
            let from = self.starts[index].max(run.node);
            let to = self.starts.get(index + 1).copied().unwrap_or(self.nodes).min(end);
            let first_slot = run.first_slot + (from - run.node) * run.slots;
            NodeRun { first_slot, slots: to.saturating_sub(from) * run.slots, node: self.ids[index], nodes: 1 }
        })
    }
}

/// The slots of a component by unit: a unit is a node, or a domain.
#[derive(Clone, Debug)]
pub struct Units {
    /// In slot order.
    pub(crate) runs: Vec<NodeRun>,
    /// Units with slots that are not consecutive.
    pub(crate) revisited: RankSet,
    /// By slot, its unit. Empty unless units are revisited.
    pub(crate) by_slot: Vec<u32>,
}

impl Units {
    /// The units of these slots, in slot order.
    pub(crate) fn of(parts: impl Iterator<Item = NodeRun>) -> Self {
        let runs = joined(parts);
        let revisited = overlap(runs.iter().map(|run| (run.node, run.nodes)));
        let mut units = Units { runs, revisited, by_slot: Vec::new() };
        if !units.revisited.is_empty() {
            let each = |run: &NodeRun| {
                let slots = run.slots as usize;
                (run.node..run.node + run.nodes).flat_map(move |unit| std::iter::repeat_n(unit, slots))
            };
            units.by_slot = units.runs.iter().flat_map(each).collect();
        }
        units
    }

    /// The same slots by the domains of a level.
    #[must_use]
    pub fn in_domains(&self, domains: &Domains) -> Units {
        Units::of(self.runs.iter().flat_map(|&run| domains.cut(run)))
    }
}
