//! What a resource rank means: the nodes of the selected groups and their resources, as prefix sums.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{MAX_LOCAL, MAX_RANK, NodeRank, ResourceRank};
use crate::inventory::Inventory;
use crate::rank_set::{RankRange, RankSet};

/// What a resource is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// The accelerators of a node.
    Accelerator,
    /// A node as a whole.
    Node,
    /// Configured hardware of this type: robots.
    Hardware(String),
}

impl ResourceKind {
    /// The name of [`ResourceKind::Accelerator`].
    pub const ACCELERATOR: &str = "accelerator";
    /// The name of [`ResourceKind::Node`].
    pub const NODE: &str = "node";

    /// The name of the kind: `accelerator`, `node` or the type of the hardware.
    pub fn name(&self) -> &str {
        match self {
            ResourceKind::Accelerator => Self::ACCELERATOR,
            ResourceKind::Node => Self::NODE,
            ResourceKind::Hardware(name) => name,
        }
    }
}

impl From<String> for ResourceKind {
    /// The kind of this name.
    fn from(name: String) -> Self {
        match name.as_str() {
            Self::ACCELERATOR => ResourceKind::Accelerator,
            Self::NODE => ResourceKind::Node,
            _ => ResourceKind::Hardware(name),
        }
    }
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
        no_overlap(inventory, selections, &kinds, by_node)?;
        let mut pool =
            Pool { groups: Arc::new([]), blocks: Vec::new(), starts: vec![0], kinds: Vec::new(), num_nodes, by_node };
        let mut groups = Vec::with_capacity(selections.len());
        let mut total = 0;
        for (index, (selection, kind)) in selections.iter().zip(kinds).enumerate() {
            let kind = if by_node { ResourceKind::Node } else { kind };
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
                        return Err(
                            Diagnostic::new(Code::InvalidInventory, message).help("give the node fewer configs")
                        );
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
            return Err(Diagnostic::new(Code::InvalidInventory, message).help("select fewer node groups"));
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
            format!("{} only nodes to count, no accelerators or other hardware", self.has()),
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

    /// The resources by the node that they are on, for the way back to their ranks.
    pub(crate) fn by_place(&self) -> ByPlace<'_> {
        let mut blocks: Vec<_> = (0..)
            .zip(&self.blocks)
            .map(|(index, block)| (&self.groups[block.group as usize].kind, block.node, index))
            .collect();
        blocks.sort_unstable();
        ByPlace { pool: self, blocks, last: 0 }
    }

    /// What a resource is called in a message, for this many of them.
    pub fn noun(&self, count: u32) -> Cow<'static, str> {
        let mut kinds = self.groups.iter().map(|group| &group.kind);
        match kinds.next() {
            Some(first) if kinds.all(|kind| kind == first) => first.noun(count),
            _ => plural(count, "resource"),
        }
    }

    /// The groups as a message names them, for what they have.
    pub fn has(&self) -> String {
        let labels: Vec<_> = self.groups.iter().map(|group| format!("`{}`", group.label)).collect();
        match labels.as_slice() {
            [label] => format!("node group {label} has"),
            labels => format!("node groups {} have", labels.join(", ")),
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

/// The blocks of a pool by what they have and their node. There is one of each kind on a node.
pub(crate) struct ByPlace<'a> {
    pool: &'a Pool,
    blocks: Vec<(&'a ResourceKind, NodeRank, usize)>,
    /// Where the last one was found; most are found there again.
    last: usize,
}

impl ByPlace<'_> {
    /// The rank of a resource: its kind, its node, and its local index there.
    pub fn rank(&mut self, kind: &ResourceKind, node: NodeRank, local: u32) -> Option<u32> {
        let holds = |at: usize| self.blocks.get(at).is_some_and(|block| (block.0, block.1) == (kind, node));
        if !holds(self.last) {
            self.last = self.blocks.partition_point(|block| (block.0, block.1) < (kind, node));
        }
        let (first, end) = self.pool.bounds(self.blocks.get(self.last).filter(|_| holds(self.last))?.2);
        Some(first + local).filter(|&rank| rank < end)
    }
}

/// Refuse two selections that count the same thing on one node: one sweep over what each counts where.
fn no_overlap(
    inventory: &Inventory,
    selections: &[Selection],
    kinds: &[ResourceKind],
    by_node: bool,
) -> Result<(), Diagnostic> {
    if selections.len() < 2 {
        return Ok(());
    }
    let has_any = |node: &u32| inventory.spec(NodeRank(*node)).is_some_and(|spec| !spec.accelerator_ids.is_empty());
    let counted = |selection: &Selection| match &selection.counted {
        _ if by_node => selection.nodes.clone(),
        Counted::Hardware(_, counts) => counts.iter().map(|&(NodeRank(node), _)| node).collect(),
        Counted::AcceleratorsOrNodes | Counted::Nodes => selection.nodes.iter().filter(has_any).collect(),
    };
    let counted: Vec<RankSet> = selections.iter().map(counted).collect();
    let mut names: HashMap<&ResourceKind, usize> = HashMap::new();
    let mut places = Vec::new();
    for (index, (nodes, kind)) in counted.iter().zip(kinds).enumerate() {
        let next = names.len();
        let kind = if by_node { 0 } else { *names.entry(kind).or_insert(next) };
        places.extend(nodes.ranges().iter().map(|&range| (kind, range, index)));
    }
    places.sort_unstable();
    let overlap = |pair: &&[(usize, RankRange, usize)]| pair[0].0 == pair[1].0 && pair[0].1.last() >= pair[1].1.first();
    let Some(&[(.., one), (.., other)]) = places.windows(2).find(overlap) else {
        return Ok(());
    };
    let (first, second) = (one.min(other), one.max(other));
    let (earlier, later) = (&selections[first].label, &selections[second].label);
    if earlier == later {
        return Err(Diagnostic::new(Code::OverlappingGroups, format!("node group `{earlier}` is named twice"))
            .help("name each group once"));
    }
    let both = counted[first].intersection(&counted[second]);
    let what = if by_node { ResourceKind::Node.noun(2) } else { kinds[first].noun(2) };
    let nodes = plural(both.len(), "node");
    Err(Diagnostic::new(
        Code::OverlappingGroups,
        format!("node groups `{earlier}` and `{later}` both count the {what} of {nodes} {both}"),
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
