//! The cost of an arrangement: a list of numbers, compared from the first one on.

use std::collections::BTreeMap;

use crate::arrange::demand::{Bond, CLASSES, Demand};
use crate::arrange::hierarchy::Hierarchy;
use crate::rank_set::RankSet;

/// Node ranks to place on nodes, with the facts of both.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The nodes that can be used.
    pub domains: Hierarchy,
    /// By node, the class of its hardware.
    pub node_class: Vec<u32>,
    /// By node rank, the class of the hardware that it needs; `None` for a node rank without processes, which gets no node.
    pub rank_class: Vec<Option<u32>>,
    /// By node with broken accelerators: the node ranks that need one of these.
    pub unfit: BTreeMap<u32, RankSet>,
    /// The groups and processes of the plan.
    pub demand: Demand,
    /// Sets of node ranks that must share a domain.
    pub bonds: Vec<Bond>,
    /// Sets of node ranks that should be in few domains of their level, and of each outer one.
    pub preferred: Vec<Bond>,
    /// Sets of node ranks that should be divided evenly between the domains of their level that they use.
    pub balanced: Vec<Bond>,
    /// By level and domain, the most node ranks; a level without an entry for a domain has no limit.
    pub caps: Vec<Vec<u32>>,
    /// By node rank, the node that it must get.
    pub pinned: Vec<Option<u32>>,
    /// By node rank, its node before; `None` if that cannot be used any more. Empty without an old plan.
    pub old: Vec<Option<u32>>,
    /// Nodes of a segment, for counting whole segments of unused nodes; 1 without segments.
    pub segment: u32,
}

/// The cost of an arrangement, in the order of importance: rules broken; processes on another node than before, then those that
/// use accelerators there from elsewhere; by level, outermost first, the domains that preferred sets use beyond the first; by
/// level, the groups of each of [`CLASSES`] that cross a domain; by balanced set, the least share, negated, the domains in use of
/// its level, and the largest share; by level, the domains in use; by level, the unused nodes in them; whole segments of unused
/// nodes, negated.
pub type Cost = Vec<i64>;

/// By node rank, its node, if it has one.
pub type Assignment = Vec<Option<u32>>;

/// The index in a [`Cost`] of the processes that move.
pub const MOVED: usize = 1;

/// Which of two arrangements is better, and why: its cost, then the nodes of its node ranks in the order through the domains.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    pub cost: Cost,
    pub nodes: Assignment,
}

impl Best {
    /// Take a better arrangement: one that costs less, or of equal ones that break no rule the first.
    pub fn offer(&mut self, problem: &Problem, cost: Cost, nodes: &Assignment) {
        let first = || cost[0] == 0 && cost == self.cost && problem.domains.earlier(nodes, &self.nodes);
        if cost < self.cost || first() {
            *self = Best { cost, nodes: nodes.clone() };
        }
    }
}

impl Problem {
    /// The index in a [`Cost`] of what is preferred at a level.
    pub(crate) fn preferred_at(&self, level: usize) -> usize {
        MOVED + 2 + level
    }

    /// The index in a [`Cost`] of the crossings of a class at a level.
    pub fn crossings_at(&self, level: usize, class: usize) -> usize {
        self.preferred_at(self.domains.levels()) + level * CLASSES.len() + class
    }

    /// The index in a [`Cost`] of the least share of a balanced set; its number of shares and the largest one follow.
    pub(crate) fn shares_at(&self, set: usize) -> usize {
        self.crossings_at(self.domains.levels(), 0) + 3 * set
    }

    /// The index in a [`Cost`] of the domains in use at a level.
    pub(crate) fn used_at(&self, level: usize) -> usize {
        self.shares_at(self.balanced.len()) + level
    }

    /// The index in a [`Cost`] of the unused nodes in the domains in use at a level.
    pub(crate) fn unused_at(&self, level: usize) -> usize {
        self.used_at(self.domains.levels()) + level
    }

    /// The most node ranks that may be in a domain.
    pub(crate) fn cap(&self, level: usize, domain: u32) -> u32 {
        self.caps.get(level).and_then(|caps| caps.get(domain as usize)).copied().unwrap_or(u32::MAX)
    }

    /// The node ranks to place.
    pub fn needed(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.rank_class).filter(|(_, class)| class.is_some()).map(|(rank, _)| rank)
    }

    /// Whether a node has what a node rank needs.
    pub fn fits(&self, rank: u32, node: u32) -> bool {
        self.rank_class[rank as usize] == Some(self.node_class[node as usize])
            && !self.unfit.get(&node).is_some_and(|ranks| ranks.contains(rank))
    }

    /// A cost of zeros.
    pub(crate) fn free_of_cost(&self) -> Cost {
        vec![0; self.unused_at(self.domains.levels()) + 1]
    }

    /// The processes that move if a node rank gets this node: those on it, and those that use it from elsewhere.
    pub(crate) fn movement(&self, rank: u32, node: u32) -> [i64; 2] {
        let moves = self.old.get(rank as usize).is_some_and(|&old| old != Some(node));
        let count = |of: &[u32]| if moves { of.get(rank as usize).map_or(0, |&count| count.into()) } else { 0 };
        [count(&self.demand.processes), count(&self.demand.visitors)]
    }

    /// Whether these node ranks are in several domains of a level.
    pub fn crosses(&self, nodes: &Assignment, ranks: &[u32], level: usize) -> bool {
        let mut domains = ranks.iter().filter_map(|&rank| Some(self.domains.of(level, nodes[rank as usize]?)));
        let first = domains.next();
        domains.any(|domain| Some(domain) != first)
    }

    /// By domain of a level, the node ranks of a set in it, without empty domains.
    fn shares(&self, nodes: &Assignment, ranks: &[u32], level: usize) -> Vec<i64> {
        let mut domains: Vec<u32> =
            ranks.iter().filter_map(|&rank| Some(self.domains.of(level, nodes[rank as usize]?))).collect();
        domains.sort_unstable();
        domains.chunk_by(|a, b| a == b).map(|same| same.len() as i64).collect()
    }

    /// The cost of an arrangement.
    pub fn cost(&self, nodes: &Assignment) -> Cost {
        let mut cost = self.free_of_cost();
        cost[0] = self.bonds.iter().filter(|bond| self.crosses(nodes, &bond.ranks, bond.level)).count() as i64;
        for (rank, node) in (0..).zip(nodes) {
            if let Some(node) = *node {
                let moved = self.movement(rank, node);
                cost[MOVED] += moved[0];
                cost[MOVED + 1] += moved[1];
            }
        }
        for set in &self.preferred {
            for level in 0..=set.level {
                cost[self.preferred_at(level)] += (self.shares(nodes, &set.ranks, level).len() as i64 - 1).max(0);
            }
        }
        for (index, set) in self.balanced.iter().enumerate() {
            let shares = self.shares(nodes, &set.ranks, set.level);
            let at = self.shares_at(index);
            cost[at] = -shares.iter().copied().min().unwrap_or(0);
            cost[at + 1] = shares.len() as i64;
            cost[at + 2] = shares.into_iter().max().unwrap_or(0);
        }
        for edge in &self.demand.edges {
            // An edge that crosses a domain crosses all inner ones.
            let outermost = (0..self.domains.levels()).find(|&level| self.crosses(nodes, &edge.ranks, level));
            for level in outermost.unwrap_or(usize::MAX)..self.domains.levels() {
                cost[self.crossings_at(level, edge.class)] += i64::from(edge.groups);
            }
        }
        let taken: Vec<u32> = nodes.iter().flatten().copied().collect();
        for level in 0..self.domains.levels() {
            let mut used = vec![0_u32; self.domains.count(level) as usize];
            taken.iter().for_each(|&node| used[self.domains.of(level, node) as usize] += 1);
            for (domain, &count) in (0..).zip(&used).filter(|(_, count)| **count > 0) {
                cost[self.used_at(level)] += 1;
                cost[self.unused_at(level)] += i64::from(self.domains.size(level, domain) - count);
                cost[0] += i64::from(count.saturating_sub(self.cap(level, domain)));
            }
        }
        let mut unused: Vec<u32> = (0..self.domains.leaves()).map(|leaf| self.leaf_size(leaf)).collect();
        taken.iter().for_each(|&node| unused[self.domains.leaf(node) as usize] -= 1);
        if let Some(segments) = cost.last_mut() {
            *segments = -self.whole_segments(&unused);
        }
        cost
    }

    pub(crate) fn leaf_size(&self, leaf: u32) -> u32 {
        match self.domains.levels() {
            0 => self.domains.nodes(),
            levels => self.domains.size(levels - 1, leaf),
        }
    }

    /// The whole segments of nodes, given their number in each innermost domain.
    pub(crate) fn whole_segments(&self, nodes: &[u32]) -> i64 {
        if self.segment < 2 {
            return 0;
        }
        nodes.iter().map(|nodes| i64::from(nodes / self.segment)).sum()
    }
}
