//! Pools in the order in which a trainer sorts their nodes: what is in another order, and what may be exchanged.
//!
//! A trainer that sorts the nodes of a pool gives its ranks to the bundles in that order. Where the plan has another one,
//! every bundle gets the accelerators that the sorted pool has in its place. A pool keeps its accelerators; what is on them
//! changes.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::node_runs::NodeRuns;
use crate::order::{NodeOrder, Places};
use crate::rank_set::{RankRange, RankSet};
use crate::requests::{Pool, Requests, Row};
use crate::taken::Taken;

/// A pool whose nodes are in another order than that of its trainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsorted {
    /// The component of its first request.
    pub component: String,
    /// What the trainer sorts nodes by.
    pub order: NodeOrder,
    /// Its nodes as they are, each once.
    pub here: Vec<NodeRank>,
    /// The nodes as the trainer sorts them.
    pub there: Vec<NodeRank>,
    /// Whether the nodes are exchanged: no bundle is torn, and its accelerators are known.
    pub exchanged: bool,
}

/// The requests with the nodes of their pools sorted, and what changes.
#[derive(Clone, Debug, Default)]
pub struct Sorting {
    /// The pools that were not sorted.
    pub unsorted: Vec<Unsorted>,
    /// The requests after all exchanges.
    pub requests: Requests,
    /// The accelerator that takes the place of another one.
    exchanged: HashMap<u32, u32>,
}

impl Sorting {
    /// Sort the pools of requests. `ids` are Ray's ids of the nodes; `owned` has the accelerators of each component in the
    /// order of its ranks. `may_exchange` tells whether nodes in that order may be exchanged.
    pub fn of(
        requests: &Requests,
        inventory: &Inventory,
        ids: &[String],
        owned: &BTreeMap<String, Taken>,
        may_exchange: impl Fn(NodeOrder) -> bool,
    ) -> Self {
        let mut sorting = Sorting::default();
        let mut moved: BTreeMap<u32, NodeRuns> = BTreeMap::new();
        for pool in requests.pools() {
            let nodes = nodes_of(requests, &pool);
            let known: RankSet = nodes.stretches().map(|(node, _)| node.0).collect();
            let Some(places) = inventory.places(pool.order, &known, ids) else { continue };
            let place = |node: NodeRank| places.of(node);
            if nodes.stretches().is_sorted_by_key(|(node, _)| place(node)) {
                continue;
            }
            let mut bundles: Vec<NodeRank> = nodes.iter().collect();
            let here = once_each(&bundles);
            bundles.sort_by_key(|&node| place(node));
            let component = first_component(requests, &pool);
            let exchange = may_exchange(pool.order)
                .then(|| accelerators(requests, inventory, &pool, &nodes, owned.get(&component)))
                .flatten()
                .and_then(|before| {
                    let after = sorted(&before, inventory, &places);
                    let nodes = nodes_on(requests, inventory, &pool, &after)?;
                    Some((before, after, nodes))
                });
            let exchanged = exchange.is_some();
            sorting.unsorted.push(Unsorted {
                component,
                order: pool.order,
                here,
                there: once_each(&bundles),
                exchanged,
            });
            if let Some((before, after, nodes)) = exchange {
                sorting.exchanged.extend(each(&before).zip(each(&after)));
                moved.extend(nodes);
            }
        }
        sorting.requests = if moved.is_empty() { requests.clone() } else { with_nodes(requests, &moved) };
        sorting
    }

    /// The accelerators that take the place of these; `None` if all keep their place.
    pub fn exchanged(&self, taken: &Taken) -> Option<Taken> {
        if !each(taken).any(|accelerator| self.exchanged.contains_key(&accelerator)) {
            return None;
        }
        let found = each(taken).map(|accelerator| *self.exchanged.get(&accelerator).unwrap_or(&accelerator));
        Taken::from_ranges(found.filter_map(|accelerator| RankRange::new(accelerator, accelerator)))
    }
}

fn each(taken: &Taken) -> impl Iterator<Item = u32> + use<'_> {
    taken.ranges().iter().flat_map(|range| range.first()..=range.last())
}

fn once_each(nodes: &[NodeRank]) -> Vec<NodeRank> {
    let mut seen = HashSet::new();
    nodes.iter().copied().filter(|&node| seen.insert(node)).collect()
}

/// The numbers of the requests of a pool.
fn numbers(pool: &Pool) -> impl Iterator<Item = u32> + use<'_> {
    pool.requests.iter().flat_map(Clone::clone)
}

fn first_component(requests: &Requests, pool: &Pool) -> String {
    let first = numbers(pool).next().and_then(|number| requests.get(number));
    first.map(|(row, _)| row.kind.component.clone()).unwrap_or_default()
}

/// The node of each bundle of a pool.
pub(crate) fn nodes_of(requests: &Requests, pool: &Pool) -> NodeRuns {
    let mut nodes = NodeRuns::default();
    for numbers in &pool.requests {
        nodes.extend(&requests.nodes(numbers.clone()));
    }
    nodes
}

/// The accelerators of each bundle of a pool: its node, and how many.
fn bundles<'a>(requests: &'a Requests, pool: &'a Pool) -> impl Iterator<Item = (NodeRank, u32)> + use<'a> {
    let groups = numbers(pool).filter_map(|number| requests.get(number));
    groups.flat_map(|(row, group)| {
        let nodes: Vec<NodeRank> = row.nodes_of(group).iter().collect();
        nodes.into_iter().zip(row.kind.sizes())
    })
}

/// The accelerators of a pool in the order of its bundles; `None` if the plan does not tell them.
///
/// Bundles of whole nodes have all of them. Otherwise they are those that the component of the pool has there: of its
/// accelerators, in the order of its ranks, those after the ones of its earlier requests.
fn accelerators(
    requests: &Requests,
    inventory: &Inventory,
    pool: &Pool,
    nodes: &NodeRuns,
    owned: Option<&Taken>,
) -> Option<Taken> {
    if bundles(requests, pool).all(|(node, size)| size == inventory.num_accelerators(node)) {
        return Taken::from_ranges(nodes.iter().filter_map(|node| inventory.accelerators_of(node)));
    }
    let first = numbers(pool).next()?;
    let component = first_component(requests, pool);
    let mine = |row: &&Row| row.kind.component == component;
    let earlier = requests.slice(0..first);
    let start: u64 =
        earlier.rows().iter().filter(mine).map(|row| row.kind.accelerators() * u64::from(row.groups)).sum();
    let count: u64 = bundles(requests, pool).map(|(_, size)| u64::from(size)).sum();
    let start = u32::try_from(start).ok()?;
    let found = owned?.slice(start..start.checked_add(u32::try_from(count).ok()?)?);
    let owners = found.stretches(inventory).flat_map(|(node, count)| std::iter::repeat_n(node, count as usize));
    let planned = bundles(requests, pool).flat_map(|(node, size)| std::iter::repeat_n(node, size as usize));
    owners.eq(planned).then_some(found)
}

/// Accelerators in the order of the places of their nodes; on a node they keep theirs.
fn sorted(taken: &Taken, inventory: &Inventory, places: &Places) -> Taken {
    let on_nodes = |range: &RankRange| {
        let parts: Vec<_> = inventory.nodes_of(*range).collect();
        parts.into_iter().filter_map(|(node, local)| {
            let first = inventory.resource(node, local.first())?;
            Some((places.of(node), RankRange::counted(first, local.len())?))
        })
    };
    let mut parts: Vec<_> = taken.ranges().iter().flat_map(on_nodes).collect();
    parts.sort_by_key(|&(place, _)| place);
    Taken::from_ranges(parts.into_iter().map(|(_, range)| range)).unwrap_or_default()
}

/// The nodes of each request of a pool if its bundles have these accelerators in turn; `None` if a bundle is torn.
fn nodes_on(requests: &Requests, inventory: &Inventory, pool: &Pool, taken: &Taken) -> Option<Vec<(u32, NodeRuns)>> {
    let mut owners = taken.stretches(inventory).flat_map(|(node, count)| std::iter::repeat_n(node, count as usize));
    let mut found = Vec::new();
    for number in numbers(pool) {
        let (row, _) = requests.get(number)?;
        let mut nodes = NodeRuns::default();
        for size in row.kind.sizes().filter(|&size| size > 0) {
            let mut bundle = owners.by_ref().take(size as usize);
            let first = bundle.next()?;
            if bundle.any(|node| node != first) {
                return None;
            }
            nodes.push(first.0, 1);
        }
        found.push((number, nodes));
    }
    Some(found)
}

/// The requests with other nodes for some of them, by number.
fn with_nodes(requests: &Requests, moved: &BTreeMap<u32, NodeRuns>) -> Requests {
    let mut found = Requests::default();
    let mut next = 0;
    for (&number, nodes) in moved {
        found.extend(&requests.slice(next..number));
        if let Some(row) = requests.slice(number..number + 1).rows().first() {
            found.push(Row { nodes: nodes.clone(), ..row.clone() });
        }
        next = number + 1;
    }
    found.extend(&requests.slice(next..requests.len()));
    found
}
