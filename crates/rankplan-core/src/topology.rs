//! What a resource rank means: the nodes of the selected groups and their resources, as prefix sums.

use std::borrow::Cow;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{MAX_LOCAL, MAX_RANK, NodeRank, ResourceRank};
use crate::rank_set::{RankRange, RankSet};

/// The accelerators of a node. Nodes that have the same share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSpec {
    /// `NV_GPU`, ...; `NO_ACCEL` for a node without accelerators.
    pub accelerator_type: String,
    /// The node's own name of each accelerator, by local index: `["0", "1"]`, UUIDs, MIG ids.
    pub accelerator_ids: Vec<String>,
}

/// What each node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    specs: Vec<Arc<NodeSpec>>,
    /// By node rank: the index of its spec.
    nodes: Vec<u32>,
    /// By node rank, the number of accelerators before it; and at the end, of all.
    starts: Vec<u32>,
}

impl Inventory {
    /// An inventory from specs and the nodes that have them.
    ///
    /// # Errors
    /// `invalid-inventory` when the node ranks are not `0..n` with each in one entry, when a node has more than 65,536
    /// accelerators, or when there are more accelerators than ranks.
    pub fn new(entries: Vec<(RankSet, NodeSpec)>) -> Result<Self, Diagnostic> {
        let refuse = |message: String| Diagnostic::new(Code::InvalidInventory, message);
        let mut ranges: Vec<_> = entries.iter().flat_map(|(ranks, _)| ranks.ranges().iter().copied()).collect();
        ranges.sort_unstable();
        let mut count = 0;
        for range in ranges {
            if range.first() < count {
                let twice = range.first();
                return Err(refuse(format!("node rank {twice} is listed twice")).help("list each node once"));
            }
            if range.first() > count {
                return Err(refuse(format!("node rank {count} is not listed, but {} is", range.first()))
                    .help("number the nodes from 0 on, without a gap"));
            }
            count = range.last() + 1;
        }
        if let Some(most) =
            entries.iter().map(|(_, spec)| spec.accelerator_ids.len()).max().filter(|&n| n > MAX_LOCAL as usize)
        {
            return Err(refuse(format!("{most} accelerators on one node; at most {MAX_LOCAL} can be")));
        }
        let total: u64 =
            entries.iter().map(|(ranks, spec)| u64::from(ranks.len()) * spec.accelerator_ids.len() as u64).sum();
        if total > u64::from(MAX_RANK) {
            return Err(refuse(format!("{total} accelerators in all; at most {MAX_RANK} can be ranked")));
        }
        let mut nodes = vec![0; count as usize];
        for (index, (ranks, _)) in entries.iter().enumerate() {
            for range in ranks.ranges() {
                nodes[range.first() as usize..=range.last() as usize].fill(index as u32);
            }
        }
        let mut starts = Vec::with_capacity(nodes.len() + 1);
        starts.push(0);
        let mut end = 0;
        for &index in &nodes {
            end += entries[index as usize].1.accelerator_ids.len() as u32;
            starts.push(end);
        }
        Ok(Inventory { specs: entries.into_iter().map(|(_, spec)| Arc::new(spec)).collect(), nodes, starts })
    }

    /// How many nodes there are.
    pub fn num_nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// All accelerators, counted node by node.
    pub fn accelerators(&self) -> RankSet {
        RankSet::first_ranks(self.starts.last().copied().unwrap_or(0))
    }

    /// The rank of a node's first accelerator among all accelerators of the cluster.
    pub(crate) fn first_accelerator(&self, node: NodeRank) -> u32 {
        self.starts.get(node.0 as usize).copied().unwrap_or(0)
    }

    /// Accelerators, counted node by node, as local indices on each node that has one of them.
    pub fn by_node(&self, accelerators: &RankSet) -> Vec<(NodeRank, RankSet)> {
        let mut found: Vec<(NodeRank, Vec<RankRange>)> = Vec::new();
        for range in accelerators.ranges() {
            let mut rank = range.first();
            while rank <= range.last() {
                let node = self.starts.partition_point(|&start| start <= rank).saturating_sub(1);
                let (start, Some(&end)) = (self.starts[node], self.starts.get(node + 1)) else { break };
                let last = (end - 1).min(range.last());
                let local = RankRange::new(rank - start, last - start);
                match found.last_mut().filter(|(known, _)| known.0 as usize == node) {
                    Some((_, ranges)) => ranges.extend(local),
                    None => found.push((NodeRank(node as u32), local.into_iter().collect())),
                }
                rank = last + 1;
            }
        }
        found.into_iter().map(|(node, ranges)| (node, RankSet::from_ranges(ranges))).collect()
    }

    /// The nodes that have each spec.
    pub fn entries(&self) -> impl Iterator<Item = (RankSet, &NodeSpec)> {
        let mut ranks = vec![Vec::new(); self.specs.len()];
        for (node, &spec) in self.nodes.iter().enumerate() {
            ranks[spec as usize].push(node as u32);
        }
        ranks.into_iter().zip(&self.specs).map(|(ranks, spec)| (ranks.into_iter().collect(), &**spec))
    }

    /// The accelerators of a node, if there is such a node.
    pub fn spec(&self, node: NodeRank) -> Option<&Arc<NodeSpec>> {
        self.nodes.get(node.0 as usize).map(|&index| &self.specs[index as usize])
    }
}

/// What a resource is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// The accelerators of a node.
    Accelerator,
    /// A node as a whole.
    Node,
    /// Configured hardware of this type: robots.
    Hardware(String),
}

/// A node group that a component selects.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The group's label.
    pub label: String,
    /// Its nodes; all must be in the inventory.
    pub nodes: RankSet,
    /// What is counted on them.
    pub counted: Counted,
}

/// What a node group counts on its nodes.
#[derive(Clone, Debug)]
pub enum Counted {
    /// Accelerators if any of the nodes has one, else nodes.
    AcceleratorsOrNodes,
    /// Nodes.
    Nodes,
    /// Configured hardware: its type, and how many each node has, ascending by node.
    Hardware(String, Vec<(NodeRank, u32)>),
}

/// A selected node group and what it counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The group's label.
    pub label: String,
    /// What it counts.
    pub kind: ResourceKind,
}

/// Resources of one group on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The node.
    pub node: NodeRank,
    /// Index of the group in [`Pool::groups`].
    pub group: u32,
    /// The hardware type, see [`Pool::kind_name`]. One process takes resources of one.
    pub kind: u32,
}

/// The resources that a component can be placed on, counted node by node through its groups.
#[derive(Clone, Debug)]
pub struct Pool {
    groups: Arc<[Group]>,
    blocks: Vec<Block>,
    /// By block: the resource rank of its first resource; and at the end, the number of resources.
    starts: Vec<u32>,
    /// The names of the hardware types.
    kinds: Vec<String>,
    num_nodes: u32,
    by_node: bool,
}

impl Pool {
    /// The resources of these groups, group after group.
    ///
    /// # Errors
    /// `node-out-of-range` when a group has a node that the inventory does not have, `overlapping-groups` when two groups
    /// count the same thing on one node.
    pub fn new(inventory: &Inventory, selections: &[Selection]) -> Result<Self, Diagnostic> {
        let num_nodes = inventory.num_nodes();
        for Selection { label, nodes, .. } in selections {
            if let Some(last) = nodes.ranges().last().filter(|last| last.last() >= num_nodes) {
                return Err(Diagnostic::new(
                    Code::NodeOutOfRange,
                    format!(
                        "node group `{label}` has node {}, but the cluster has {}",
                        last.last(),
                        count(num_nodes, "node")
                    ),
                )
                .help(format!(
                    "use node ranks below {num_nodes}, or set num_nodes to {}",
                    u64::from(last.last()) + 1
                )));
            }
        }
        let accelerators =
            |node: u32| inventory.spec(NodeRank(node)).map_or(0, |spec| spec.accelerator_ids.len() as u32);
        let kinds: Vec<ResourceKind> = selections
            .iter()
            .map(|selection| match &selection.counted {
                Counted::Nodes => ResourceKind::Node,
                Counted::Hardware(kind, _) => ResourceKind::Hardware(kind.clone()),
                Counted::AcceleratorsOrNodes if selection.nodes.iter().any(|node| accelerators(node) > 0) => {
                    ResourceKind::Accelerator
                }
                Counted::AcceleratorsOrNodes => ResourceKind::Node,
            })
            .collect();
        let by_node = kinds.contains(&ResourceKind::Node);
        let mut pool =
            Pool { groups: Arc::new([]), blocks: Vec::new(), starts: vec![0], kinds: Vec::new(), num_nodes, by_node };
        let mut groups = Vec::with_capacity(selections.len());
        let mut total = 0;
        for (index, (selection, kind)) in selections.iter().zip(kinds).enumerate() {
            let kind = if by_node { ResourceKind::Node } else { kind };
            for (earlier, group) in selections[..index].iter().zip(&groups) {
                no_overlap(earlier, group, selection, &kind)?;
            }
            let mut add = |node: u32, count: u32| {
                if count > 0 {
                    total += u64::from(count);
                    let name = match &kind {
                        ResourceKind::Accelerator => {
                            inventory.spec(NodeRank(node)).map_or("", |spec| &spec.accelerator_type)
                        }
                        ResourceKind::Node => "node",
                        ResourceKind::Hardware(name) => name,
                    };
                    let kind = pool.kinds.iter().position(|known| known == name).unwrap_or_else(|| {
                        pool.kinds.push(name.to_owned());
                        pool.kinds.len() - 1
                    });
                    pool.blocks.push(Block { node: NodeRank(node), group: index as u32, kind: kind as u32 });
                    pool.starts.push(total as u32);
                }
            };
            match (&kind, &selection.counted) {
                (ResourceKind::Hardware(_), Counted::Hardware(_, counts)) => {
                    if let Some((node, most)) = counts.iter().find(|(_, count)| *count > MAX_LOCAL) {
                        let message = format!("{most} pieces of hardware on node {node}; at most {MAX_LOCAL} can be");
                        return Err(Diagnostic::new(Code::InvalidInventory, message));
                    }
                    counts.iter().for_each(|&(node, count)| add(node.0, count));
                }
                (ResourceKind::Accelerator, _) => selection.nodes.iter().for_each(|node| add(node, accelerators(node))),
                _ => selection.nodes.iter().for_each(|node| add(node, 1)),
            }
            groups.push(Group { label: selection.label.clone(), kind });
        }
        if total > u64::from(MAX_RANK) {
            let message = format!("{total} resources in the selected node groups; at most {MAX_RANK} can be ranked");
            return Err(Diagnostic::new(Code::InvalidInventory, message));
        }
        pool.groups = groups.into();
        Ok(pool)
    }

    /// The selected groups, in the order in which they were written.
    pub fn groups(&self) -> &Arc<[Group]> {
        &self.groups
    }

    /// How many resources there are; their ranks are `0..len`.
    pub fn len(&self) -> u32 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there is no resource.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// How many nodes the cluster has.
    pub fn num_nodes(&self) -> u32 {
        self.num_nodes
    }

    /// Refuse groups that count nodes.
    ///
    /// # Errors
    /// `no-resources`.
    pub fn require_hardware(&self) -> Result<(), Diagnostic> {
        if !self.by_node {
            return Ok(());
        }
        Err(Diagnostic::new(
            Code::NoResources,
            format!("{} counts nodes: it has no accelerators or other hardware", self.name()),
        )
        .help("select a group that has some, or place by node with NodePlacementStrategy"))
    }

    /// Whether nodes are counted.
    pub fn by_node(&self) -> bool {
        self.by_node
    }

    /// The block at this index.
    pub fn block(&self, index: usize) -> Block {
        self.blocks[index]
    }

    /// The resource ranks of a block: its first, and the one after its last.
    pub fn bounds(&self, index: usize) -> (u32, u32) {
        (self.starts[index], self.starts[index + 1])
    }

    /// The name of a hardware type: `NV_GPU`, `Franka`.
    pub fn kind_name(&self, kind: u32) -> &str {
        self.kinds.get(kind as usize).map_or("", String::as_str)
    }

    /// The index of the block that holds a resource, which must be below [`Pool::len`]. A walk that hands in the block it
    /// stands in, or the one before, pays nothing; else it is a binary search.
    pub fn block_of(&self, rank: ResourceRank, hint: usize) -> usize {
        let ResourceRank(rank) = rank;
        let holds =
            |index: usize| self.starts[index] <= rank && self.starts.get(index + 1).is_some_and(|&end| rank < end);
        if holds(hint) {
            hint
        } else if hint + 1 < self.blocks.len() && holds(hint + 1) {
            hint + 1
        } else {
            self.starts.partition_point(|&start| start <= rank).saturating_sub(1)
        }
    }

    /// What a resource is called in a message, for this many of them.
    pub fn noun(&self, count: u32) -> Cow<'static, str> {
        let mut kinds = self.groups.iter().map(|group| &group.kind);
        match kinds.next() {
            Some(first) if kinds.all(|kind| kind == first) => first.noun(count),
            _ => plural(count, "resource"),
        }
    }

    /// The groups as a message names them.
    pub fn name(&self) -> String {
        let labels: Vec<_> = self.groups.iter().map(|group| format!("`{}`", group.label)).collect();
        match labels.as_slice() {
            [label] => format!("node group {label}"),
            labels => format!("node groups {}", labels.join(", ")),
        }
    }
}

impl ResourceKind {
    /// What a resource of the kind is called in a message, for this many of them.
    pub fn noun(&self, count: u32) -> Cow<'static, str> {
        match self {
            ResourceKind::Accelerator => plural(count, "accelerator"),
            ResourceKind::Node => plural(count, "node"),
            ResourceKind::Hardware(kind) => Cow::Owned(format!("{kind} {}", plural(count, "unit"))),
        }
    }
}

fn no_overlap(
    earlier: &Selection,
    group: &Group,
    selection: &Selection,
    kind: &ResourceKind,
) -> Result<(), Diagnostic> {
    if group.kind != *kind {
        return Ok(());
    }
    let both = earlier.nodes.intersection(&selection.nodes);
    let shared = match (&earlier.counted, &selection.counted) {
        (Counted::Hardware(..), Counted::Hardware(..)) if *kind != ResourceKind::Node => {
            earlier.label == selection.label
        }
        _ => !both.is_empty(),
    };
    if !shared {
        return Ok(());
    }
    let what = kind.noun(2);
    Err(Diagnostic::new(
        Code::OverlappingGroups,
        format!(
            "node groups `{}` and `{}` both count the {what} of {} {both}",
            earlier.label,
            selection.label,
            plural(both.len(), "node")
        ),
    )
    .help("select groups that have no node in common, or one group that has all of these nodes"))
}

pub(crate) fn plural(count: u32, noun: &'static str) -> Cow<'static, str> {
    if count == 1 { Cow::Borrowed(noun) } else { Cow::Owned(format!("{noun}s")) }
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(count: u32, noun: &'static str) -> String {
    format!("{count} {}", plural(count, noun))
}
