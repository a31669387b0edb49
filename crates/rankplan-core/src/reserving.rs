//! Whether nodes have the CPUs, the memory and the custom resources that requests and actors ask for.
//!
//! Two questions, each for one resource at a time. What can *never* be reserved, wherever Ray puts it: a bundle that is
//! larger than every node, a group that must be on one node and is larger than every node, more bundles than all nodes have
//! room for, more in all than all nodes have. And what cannot be reserved on the nodes *of the plan*: what its bundles on a
//! node ask for together, and actors for which nothing is left beside them. Ray may find other nodes for the second kind.
//! Actors of the processes of a component are on their nodes; if a node has one group, which must be on one node, they go
//! where this group goes.
//!
//! A node with unknown amounts may have any: nothing is claimed of it, nor of all nodes together. Nodes in a row that are
//! alike are looked at once for each resource and each kind of bundle; only what the plan has on each node is counted node by
//! node.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::actors::Actors;
use crate::amounts::{Amount, Amounts};
use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::node::Node;
use crate::node_runs::NodeRuns;
use crate::rank_set::RankSet;
use crate::requests::{Bundle, Kind, Requests, Row, STRICT_PACK};

/// What is counted: CPUs and custom resources in ten-thousandths, memory in MiB.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// CPUs.
    Cpus,
    /// Host memory.
    Memory,
    /// A custom resource.
    Custom(String),
}

impl Resource {
    fn of(&self, amounts: &Amounts) -> Option<u64> {
        match self {
            Resource::Cpus => amounts.cpus.map(|cpus| cpus.0),
            Resource::Memory => amounts.memory,
            Resource::Custom(name) => amounts.custom.get(name).map(|amount| amount.0),
        }
    }

    /// The number of so many units.
    pub fn number(&self, units: u64) -> f64 {
        match self {
            Resource::Memory => units as f64,
            _ => Amount(units).number(),
        }
    }
}

/// What lacks something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asking {
    /// A bundle of a component: no node is so large.
    Bundle(String),
    /// A group of a component that must be on one node: no node is so large.
    Group(String),
    /// Bundles of a component: how many there are, and for how many the nodes have room.
    Bundles(String, u32, u32),
    /// One of these actors: no node is so large.
    Actor(String),
    /// Everything.
    All,
    /// The bundles that the plan has on a node.
    OnNodes,
    /// One of these actors, beside the bundles of the plan.
    Beside(String),
    /// These actors, on the nodes of the processes that they belong to. `is_final`: they and their group fit on no node.
    OnTheirNodes {
        /// What they are.
        name: String,
        /// Whether no node has enough for them and their group.
        is_final: bool,
    },
}

/// Something that cannot be reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What asks for it.
    pub asking: Asking,
    /// What lacks.
    pub resource: Resource,
    /// The amount that is needed: by one bundle, group or actor, or by all of them on the nodes in question.
    pub needed: u64,
    /// The most that there is for it.
    pub present: u64,
    /// The nodes that have too little, by what each has and what each would need, if single nodes have.
    pub nodes: BTreeMap<(u64, u64), Vec<u32>>,
}

impl Lack {
    fn new(asking: Asking, resource: &Resource, needed: u64, present: u64) -> Self {
        Lack { asking, resource: resource.clone(), needed, present, nodes: BTreeMap::new() }
    }

    /// Whether nothing can help but other nodes, or another config.
    pub fn is_final(&self) -> bool {
        !matches!(self.asking, Asking::OnNodes | Asking::Beside(_) | Asking::OnTheirNodes { is_final: false, .. })
    }

    /// Whether it is an actor that is larger than every node.
    fn is_of_actor(&self) -> bool {
        matches!(self.asking, Asking::Actor(_))
    }
}

/// Nodes in a row that may be used and are alike.
struct Alike<'a> {
    ranks: Range<u32>,
    accelerators: u32,
    /// What each has; an unknown amount is missing.
    amounts: &'a Amounts,
}

/// Nodes in a row with as much of a resource, if it is known.
struct Candidates {
    ranks: Range<u32>,
    accelerators: u32,
    amount: Option<u64>,
}

impl Candidates {
    fn len(&self) -> u64 {
        u64::from(self.ranks.end - self.ranks.start)
    }
}

/// The requests and the actors that must be reserved.
struct Asked<'a> {
    requests: &'a Requests,
    /// Those on any node.
    actors: Vec<&'a Actors>,
    /// Those of the processes of a component, with the node of each process.
    of_processes: Vec<(&'a Actors, &'a NodeRuns)>,
    /// Each kind of bundle with its component, and how many there are.
    bundles: Vec<(&'a str, &'a Bundle, u64)>,
}

/// What cannot be reserved: what never can be, and only without any such, what cannot be on the nodes of the plan.
/// `processes` has the node of each process of a component that actors belong to. `excluded` are accelerators, and `unused`
/// nodes, that no process may use.
pub fn lacking(
    requests: &Requests,
    actors: &[Actors],
    processes: &BTreeMap<String, NodeRuns>,
    inventory: &Inventory,
    excluded: &RankSet,
    unused: &RankSet,
) -> Vec<Lack> {
    let nodes_of = |actors: &Actors| actors.component.as_ref().and_then(|name| processes.get(name));
    let asked = Asked {
        requests,
        actors: actors.iter().filter(|actors| actors.component.is_none()).collect(),
        of_processes: actors.iter().filter_map(|actors| Some((actors, nodes_of(actors)?))).collect(),
        bundles: kinds_of_bundles(requests),
    };
    let resources: BTreeSet<Resource> = asked.amounts().flat_map(resources_of).collect();
    if resources.is_empty() {
        return Vec::new();
    }
    let alike = nodes_alike(inventory, excluded, unused);
    let mut never = Vec::new();
    let mut planned = Vec::new();
    for resource in resources {
        let nodes = candidates(inventory, &alike, &resource);
        let fault = asked.never(&resource, &nodes);
        if fault.is_empty() {
            planned.extend(asked.planned(&resource, &nodes, inventory.num_nodes()));
        } else if asked.is_of_actors(&resource, &fault) {
            let lacks = asked.planned(&resource, &nodes, inventory.num_nodes());
            never.extend(lacks.into_iter().filter(|lack| lack.asking == Asking::OnNodes));
        }
        never.extend(fault);
    }
    if never.is_empty() { planned } else { never }
}

/// Each kind of bundle that will come, with its component, and how many there are.
fn kinds_of_bundles(requests: &Requests) -> Vec<(&str, &Bundle, u64)> {
    let mut kinds: Vec<(&str, &Bundle, u64)> = Vec::new();
    for row in requests.rows().iter().filter(|row| !row.kind.optional) {
        for run in &row.kind.bundles {
            let count = u64::from(row.groups) * u64::from(run.times);
            match kinds.iter_mut().find(|(name, bundle, _)| *name == row.kind.component && **bundle == run.each) {
                Some((_, _, total)) => *total += count,
                None => kinds.push((&row.kind.component, &run.each, count)),
            }
        }
    }
    kinds
}

fn resources_of(amounts: &Amounts) -> Vec<Resource> {
    let cpus = amounts.cpus.map(|_| Resource::Cpus);
    let memory = amounts.memory.map(|_| Resource::Memory);
    let custom = amounts.custom.iter().map(|(name, _)| Resource::Custom(name.clone()));
    cpus.into_iter().chain(memory).chain(custom).collect()
}

/// The nodes that may be used, as runs of nodes that have the same.
fn nodes_alike<'a>(inventory: &'a Inventory, excluded: &RankSet, unused: &RankSet) -> Vec<Alike<'a>> {
    let mut found: Vec<Alike<'a>> = Vec::new();
    for (nodes, record) in inventory.stretches() {
        for rank in nodes.filter(|&rank| !unused.contains(rank)) {
            let all = inventory.accelerators_of(NodeRank(rank));
            let accelerators = all.map_or(0, |range| {
                if excluded.is_empty() { range.len() } else { RankSet::from_ranges([range]).difference(excluded).len() }
            });
            match found.last_mut() {
                Some(last)
                    if last.ranks.end == rank
                        && last.accelerators == accelerators
                        && *last.amounts == record.reservable =>
                {
                    last.ranks.end += 1;
                }
                _ => found.push(Alike { ranks: rank..rank + 1, accelerators, amounts: &record.reservable }),
            }
        }
    }
    found
}

/// These nodes with what they have of a resource.
///
/// A custom resource that some node states is lacking on the others that state anything; one that no node states is unknown.
fn candidates(inventory: &Inventory, alike: &[Alike<'_>], resource: &Resource) -> Vec<Candidates> {
    let is_custom = matches!(resource, Resource::Custom(_));
    let states = |record: &Node| resource.of(&record.reservable).is_some();
    let is_stated = is_custom && inventory.stretches().any(|(_, record)| states(record));
    let amount = |amounts: &Amounts| {
        let lacks = is_stated && !amounts.is_empty();
        resource.of(amounts).or(if lacks { Some(0) } else { None })
    };
    let candidates = alike.iter().map(|nodes| Candidates {
        ranks: nodes.ranks.clone(),
        accelerators: nodes.accelerators,
        amount: amount(nodes.amounts),
    });
    candidates.collect()
}

/// What a node has, and what the bundles of the plan leave of it.
struct Left {
    present: u64,
    amount: u64,
}

impl Asked<'_> {
    fn amounts(&self) -> impl Iterator<Item = &Amounts> {
        let bundles = self.bundles.iter().map(|(_, bundle, _)| &bundle.amounts);
        let of_processes = self.of_processes.iter().map(|(actors, _)| *actors);
        bundles.chain(self.actors.iter().copied().chain(of_processes).map(|actors| &actors.amounts))
    }

    /// What can never be reserved of a resource; nothing if a node has an unknown amount.
    fn never(&self, resource: &Resource, nodes: &[Candidates]) -> Vec<Lack> {
        let known: Option<Vec<u64>> = nodes.iter().map(|some| some.amount).collect();
        let Some(known) = known else { return Vec::new() };
        let largest = known.iter().copied().max().unwrap_or(0);
        let mut lacks = self.too_large(resource, largest);
        if lacks.iter().all(Lack::is_of_actor) {
            lacks.extend(self.too_many(resource, nodes));
        }
        let needed = self.total(resource, nodes.iter().map(Candidates::len).sum());
        let present = known.iter().zip(nodes).map(|(amount, some)| amount * some.len()).sum();
        let needed = if lacks.is_empty() { needed } else { self.of_bundles(resource) };
        if lacks.iter().all(Lack::is_of_actor) && needed > present {
            lacks.push(Lack::new(Asking::All, resource, needed, present));
        }
        lacks
    }

    /// Whether the bundles fit without the actors, which may be on nodes that the plan does not have.
    fn is_of_actors(&self, resource: &Resource, lacks: &[Lack]) -> bool {
        let bundles = self.of_bundles(resource);
        lacks.iter().all(|lack| lack.is_of_actor() || (lack.asking == Asking::All && bundles <= lack.present))
    }

    /// What all bundles ask for, and the actors that cannot be elsewhere.
    fn of_bundles(&self, resource: &Resource) -> u64 {
        let bundles = self.bundles.iter().map(|(_, bundle, count)| resource.of(&bundle.amounts).unwrap_or(0) * count);
        let actors = self.of_processes.iter().filter(|(actors, _)| !actors.brief);
        let actors = actors.map(|(actors, nodes)| {
            resource.of(&actors.amounts).unwrap_or(0) * u64::from(actors.count) * u64::from(nodes.len())
        });
        bundles.chain(actors).sum()
    }

    /// Bundles, groups and actors that are larger than every node, each once for a component.
    fn too_large(&self, resource: &Resource, largest: u64) -> Vec<Lack> {
        let mut lacks: Vec<Lack> = Vec::new();
        let mut add = |asking: Asking, needed: u64| {
            if needed > largest && !lacks.iter().any(|lack| lack.asking == asking) {
                lacks.push(Lack::new(asking, resource, needed, largest));
            }
        };
        for (name, bundle, _) in &self.bundles {
            add(Asking::Bundle((*name).to_owned()), resource.of(&bundle.amounts).unwrap_or(0));
        }
        for actors in &self.actors {
            add(Asking::Actor(actors.name.clone()), resource.of(&actors.amounts).unwrap_or(0));
        }
        let is_together = |kind: &Kind| kind.strategy.as_deref() == Some(STRICT_PACK) && !kind.optional;
        for row in self.requests.rows().iter().filter(|row| is_together(&row.kind)) {
            let total = row.kind.each().filter_map(|bundle| resource.of(&bundle.amounts)).sum();
            if row.kind.num_bundles() > 1 {
                add(Asking::Group(row.kind.component.clone()), total);
            }
        }
        lacks
    }

    /// Kinds of bundles for which all nodes together have too little room, although their accelerators would suffice.
    fn too_many(&self, resource: &Resource, nodes: &[Candidates]) -> Vec<Lack> {
        let mut lacks = Vec::new();
        for (name, bundle, count) in &self.bundles {
            let each = resource.of(&bundle.amounts).filter(|&each| each > 0);
            let Some(each) = each.filter(|_| bundle.accelerators > 0) else { continue };
            let by_accelerators = |node: &Candidates| u64::from(node.accelerators / bundle.accelerators);
            let room = |node: &Candidates| by_accelerators(node).min(node.amount.unwrap_or(0) / each);
            let total: u64 = nodes.iter().map(|some| room(some) * some.len()).sum();
            let most: u64 = nodes.iter().map(|some| by_accelerators(some) * some.len()).sum();
            if total >= *count || most < *count {
                continue;
            }
            let asking = Asking::Bundles((*name).to_owned(), *count as u32, total as u32);
            let mut lack = Lack::new(asking, resource, *count * each, total * each);
            for some in nodes.iter().filter(|some| room(some) < by_accelerators(some)) {
                let amounts = (some.amount.unwrap_or(0), by_accelerators(some) * each);
                lack.nodes.entry(amounts).or_default().extend(some.ranks.clone());
            }
            lacks.push(lack);
        }
        lacks
    }

    /// What everything asks for together.
    fn total(&self, resource: &Resource, nodes: u64) -> u64 {
        let lasting = self.actors.iter().filter(|actors| !actors.brief);
        let actors = lasting.map(|actors| {
            let times = if actors.each_node { nodes } else { 1 };
            resource.of(&actors.amounts).unwrap_or(0) * u64::from(actors.count) * times
        });
        self.of_bundles(resource) + actors.sum::<u64>()
    }

    /// What cannot be reserved on the nodes of the plan, of which there are so many: bundles, or else actors on what these
    /// leave.
    fn planned(&self, resource: &Resource, nodes: &[Candidates], num_nodes: u32) -> Vec<Lack> {
        let mut needed = vec![0; num_nodes as usize];
        for row in self.requests.rows().iter().filter(|row| !row.kind.optional) {
            self.add_row(resource, row, &mut needed);
        }
        let mut lack = Lack::new(Asking::OnNodes, resource, 0, 0);
        let mut left: Vec<Left> = Vec::new();
        let mut is_known = true;
        for some in nodes {
            let Some(present) = some.amount else {
                is_known = false;
                continue;
            };
            for rank in some.ranks.clone() {
                let each = needed.get(rank as usize).copied().unwrap_or(0);
                if each > present {
                    lack.nodes.entry((present, each)).or_default().push(rank);
                    lack.needed += each;
                    lack.present += present;
                }
                left.push(Left { present, amount: present.saturating_sub(each) });
            }
        }
        if !lack.nodes.is_empty() {
            return vec![lack];
        }
        let lacks = self.on_their_nodes(resource, nodes, &mut needed);
        if !lacks.is_empty() || !is_known {
            return lacks;
        }
        let amounts = nodes.iter().flat_map(|some| some.ranks.clone().map(|rank| (rank, some.amount.unwrap_or(0))));
        for (node, (rank, present)) in left.iter_mut().zip(amounts) {
            node.amount = present.saturating_sub(needed.get(rank as usize).copied().unwrap_or(0));
        }
        self.beside(resource, left)
    }

    /// Actors of processes for which their nodes have too little beside the bundles, whose amounts by node are `needed`: those of
    /// the actors are added.
    fn on_their_nodes(&self, resource: &Resource, nodes: &[Candidates], needed: &mut [u64]) -> Vec<Lack> {
        let known: Option<Vec<u64>> = nodes.iter().map(|some| some.amount).collect();
        let largest = known.and_then(|known| known.into_iter().max());
        let mut lacks = Vec::new();
        for (actors, on) in &self.of_processes {
            let each = resource.of(&actors.amounts).unwrap_or(0) * u64::from(actors.count);
            let mut of_actors: BTreeMap<u32, u64> = BTreeMap::new();
            for (node, processes) in on.stretches() {
                *of_actors.entry(node.0).or_default() += each * u64::from(processes);
            }
            let asking = Asking::OnTheirNodes { name: actors.name.clone(), is_final: false };
            let mut lack = Lack::new(asking, resource, 0, 0);
            let mut is_final = false;
            for (&rank, &amount) in &of_actors {
                let Some(of_node) = needed.get_mut(rank as usize) else { continue };
                let some = nodes.iter().find(|some| some.ranks.contains(&rank));
                if let Some(present) = some.and_then(|some| some.amount)
                    && *of_node + amount > present
                {
                    let left = present.saturating_sub(*of_node);
                    lack.nodes.entry((left, amount)).or_default().push(rank);
                    lack.needed += amount;
                    lack.present += left;
                    let is_too_much = largest.is_some_and(|most| *of_node + amount > most);
                    is_final = is_final || (is_too_much && self.is_one_group(rank));
                }
                if !actors.brief {
                    *of_node += amount;
                }
            }
            if !lack.nodes.is_empty() {
                lack.asking = Asking::OnTheirNodes { name: actors.name.clone(), is_final };
                lacks.push(lack);
            }
        }
        lacks
    }

    /// Whether a node has the bundles of one group only, which must be on one node.
    fn is_one_group(&self, rank: u32) -> bool {
        let rows = self.requests.rows().iter().filter(|row| !row.kind.optional);
        let mut groups = rows.flat_map(|row| {
            let each = row.kind.num_bundles().max(1);
            let mut position = 0;
            let mut on_node = BTreeSet::new();
            for (node, count) in row.nodes.stretches() {
                if node.0 == rank {
                    on_node.extend(position / each..=(position + count - 1) / each);
                }
                position += count;
            }
            on_node.into_iter().map(|_| row.kind.strategy.as_deref() == Some(STRICT_PACK))
        });
        groups.next() == Some(true) && groups.next().is_none()
    }

    /// Add what the bundles of a row ask for on each node.
    fn add_row(&self, resource: &Resource, row: &Row, needed: &mut [u64]) {
        let mut add = |node: NodeRank, amount: u64| {
            if let Some(total) = needed.get_mut(node.0 as usize) {
                *total += amount;
            }
        };
        if let [run] = &row.kind.bundles[..] {
            let each = resource.of(&run.each.amounts).unwrap_or(0);
            row.nodes.stretches().for_each(|(node, count)| add(node, each * u64::from(count)));
            return;
        }
        let each: Vec<u64> = row.kind.each().map(|bundle| resource.of(&bundle.amounts).unwrap_or(0)).collect();
        row.nodes.iter().zip(each.into_iter().cycle()).for_each(|(node, amount)| add(node, amount));
    }

    /// Actors for which no node has enough left. Those of every node come first and leave less for the others; a node that
    /// has nothing at all, such as a head that takes no work, gets none of them. Of the others, equal actors are tried
    /// alone, on the node with the most left: for these this is exact, for all together it would be no proof.
    fn beside(&self, resource: &Resource, mut left: Vec<Left>) -> Vec<Lack> {
        let mut lacks = Vec::new();
        let amount = |actors: &Actors| resource.of(&actors.amounts).unwrap_or(0);
        let mut actors: Vec<&Actors> = self.actors.iter().copied().filter(|actors| amount(actors) > 0).collect();
        actors.sort_by_key(|actors| (!actors.each_node, std::cmp::Reverse(amount(actors))));
        for actors in actors {
            let each = amount(actors);
            let mut missing = None;
            if actors.each_node {
                let each = each * u64::from(actors.count);
                let in_use = left.iter().filter(|node| node.present > 0);
                missing = in_use.map(|node| node.amount).min().filter(|&least| least < each);
                if !actors.brief {
                    left.iter_mut().for_each(|node| node.amount = node.amount.saturating_sub(each));
                }
            } else {
                let mut free: Vec<u64> = left.iter().map(|node| node.amount).collect();
                for _ in 0..actors.count {
                    match free.iter_mut().max() {
                        Some(most) if *most >= each => *most -= each,
                        most => {
                            missing = Some(most.map_or(0, |most| *most));
                            break;
                        }
                    }
                }
            }
            if let Some(present) = missing {
                lacks.push(Lack::new(Asking::Beside(actors.name.clone()), resource, each, present));
            }
        }
        lacks
    }
}
