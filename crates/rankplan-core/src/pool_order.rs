//! The order of the nodes of a plan in which its trainer sorts no pool otherwise.
//!
//! A trainer sorts the nodes of a pool among themselves. So each pool gets its own nodes back, sorted, on the same node
//! ranks. Pools that share a node are sorted as one: if all of their nodes are sorted, those of each pool are.

use std::collections::{HashMap, HashSet};

use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::order::NodeOrder;
use crate::rank_set::RankSet;
use crate::requests::{Pool, Requests};
use crate::sorting::nodes_of;

/// Nodes that a trainer sorts together, and what by.
pub type SortedNodes = (NodeOrder, RankSet);

/// The nodes of pools that share a node as those of one pool; with `together`, those of all pools in the same order.
///
/// Of pools that share a node and have different orders, those after the first one are left out.
pub fn joined(pools: impl IntoIterator<Item = SortedNodes>, together: bool) -> Vec<SortedNodes> {
    let mut groups = Groups::default();
    for (order, nodes) in pools {
        groups.add(order, nodes, together);
    }
    let mut taken = RankSet::default();
    let mut found = Vec::new();
    for (order, nodes) in groups.groups.into_iter().flatten() {
        if taken.is_disjoint(&nodes) {
            taken = taken.union(&nodes);
            found.push((order, nodes));
        }
    }
    found
}

/// Groups of nodes: a group that has joined a later one leaves `None`, and its number leads there.
#[derive(Default)]
struct Groups {
    groups: Vec<Option<SortedNodes>>,
    /// By order and node, a group that it was in.
    owners: HashMap<NodeOrder, Vec<Option<usize>>>,
    /// By group, itself or the one that it has joined.
    into: Vec<usize>,
}

impl Groups {
    /// Add the nodes of a pool, and those of all groups that share one with it.
    fn add(&mut self, order: NodeOrder, nodes: RankSet, together: bool) {
        let owners = self.owners.entry(order).or_default();
        let size = nodes.last().map_or(0, |last| last as usize + 1);
        owners.resize(owners.len().max(size), None);
        let mut joins: Vec<usize> = if together {
            let same = |group: &Option<SortedNodes>| group.as_ref().is_some_and(|(other, _)| *other == order);
            (0..self.groups.len()).filter(|&number| same(&self.groups[number])).collect()
        } else {
            let owners = nodes.iter().filter_map(|node| owners[node as usize]);
            owners.map(|owner| last_of(&self.into, owner)).collect()
        };
        joins.sort_unstable();
        joins.dedup();
        let new = self.groups.len();
        self.into.push(new);
        nodes.iter().for_each(|node| owners[node as usize] = Some(new));
        let mut sets = vec![nodes];
        for number in joins {
            self.into[number] = new;
            sets.extend(self.groups[number].take().map(|(_, nodes)| nodes));
        }
        self.groups.push(Some((order, RankSet::union_of(&sets))));
    }
}

/// The group that a group has become.
fn last_of(into: &[usize], mut number: usize) -> usize {
    while into[number] != number {
        number = into[number];
    }
    number
}

/// The node that each node rank should have for every pool of requests to be in its trainer's order. `None` if all are;
/// a pool counts as in order if the order is unknown. `ids` are Ray's ids of the nodes; `together`: see [`joined`].
pub fn order_of_pools(requests: &Requests, inventory: &Inventory, ids: &[String], together: bool) -> Option<Vec<u32>> {
    let mut pools = Vec::new();
    let mut all_sorted = true;
    for pool in requests.pools() {
        let nodes = distinct_nodes(requests, &pool);
        if let Some(is_sorted) = inventory.is_sorted(pool.order, &nodes, ids) {
            all_sorted &= is_sorted;
            pools.push((pool.order, nodes));
        }
    }
    if all_sorted {
        return None;
    }
    let pools = pools.into_iter().map(|(order, nodes)| (order, nodes.into_iter().map(|node| node.0).collect()));
    let mut found: Vec<u32> = (0..inventory.num_nodes()).collect();
    for (order, nodes) in joined(pools, together) {
        let Some(places) = inventory.places(order, &nodes, ids) else { continue };
        for (rank, &node) in nodes.iter().zip(places.sorted()) {
            found[rank as usize] = node;
        }
    }
    Some(found)
}

/// The nodes of the bundles of a pool in their order, each once.
fn distinct_nodes(requests: &Requests, pool: &Pool) -> Vec<NodeRank> {
    let nodes: Vec<NodeRank> = nodes_of(requests, pool).stretches().map(|(node, _)| node).collect();
    if nodes.is_sorted_by(|one, other| one < other) {
        return nodes;
    }
    let mut seen = HashSet::new();
    nodes.into_iter().filter(|&node| seen.insert(node)).collect()
}
