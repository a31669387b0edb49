//! The meaning of a resource rank: the nodes of the selected groups and their resources, as prefix sums.
//!
//! RLinf: `MultiNodeGroupResolver`, which counts group by group, and `NodeGroupInfo.get_node_by_hardware_rank`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{MAX_LOCAL, MAX_RANK, NodeRank, ResourceRank};
use crate::inventory::Inventory;
use crate::rank_set::{RankRange, RankSet};
use crate::selection::{Counted, Group, ResourceKind, Selection, reject_overlap};
use crate::words::{count, plural};

/// The resources of one group on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The node.
    pub node: NodeRank,
    /// Index of the group in [`Pool::groups`].
    pub group: u32,
    /// The hardware type; see [`Pool::kind_name`]. A process uses resources of one type.
    pub kind: u32,
}

/// The resources that a component can use, counted node by node through its groups.
#[derive(Clone, Debug)]
pub struct Pool {
    groups: Arc<[Group]>,
    blocks: Vec<Block>,
    /// By block, the rank of its first resource; the last entry is the number of resources.
    starts: Vec<u32>,
    /// The names of the hardware types.
    kinds: Vec<String>,
    num_nodes: u32,
    by_node: bool,
    /// Resource ranks that must not be used.
    excluded: RankSet,
    /// The index of each node's accelerators that must not be used; all if `None`.
    excluded_nodes: HashMap<u32, Option<RankSet>>,
}

/// Hardware that must not be used: nodes, or the same accelerators of each of them.
#[derive(Clone, Debug)]
pub struct Excluded {
    /// The nodes.
    pub nodes: RankSet,
    /// Local indices of their accelerators; `None` for the whole nodes.
    pub accelerators: Option<RankSet>,
}

impl Pool {
    /// The resources of these groups, group after group.
    ///
    /// # Errors
    /// `node-out-of-range` if a group has a node that the inventory lacks, `overlapping-groups` if two groups count the same
    /// resources, `invalid-inventory` beyond the limits.
    pub fn new(inventory: &Inventory, selections: &[Selection]) -> Result<Self, Diagnostic> {
        let num_nodes = inventory.num_nodes();
        for Selection { label, nodes, .. } in selections {
            if let Some(last) = nodes.ranges().last().map(|range| range.last()).filter(|&last| last >= num_nodes) {
                let message =
                    format!("node group `{label}` has node {last}, but the cluster has {}", count(num_nodes, "node"));
                let help = format!("use node ranks below {num_nodes}, or set num_nodes to {}", u64::from(last) + 1);
                return Err(Diagnostic::new(Code::NodeOutOfRange, message).help(help));
            }
        }
        let accelerators =
            |node: u32| inventory.spec(NodeRank(node)).map_or(0, |spec| spec.accelerator_ids.len() as u32);
        let kind = |selection: &Selection| match &selection.counted {
            Counted::Hardware(kind, _) => ResourceKind::Hardware(kind.clone()),
            Counted::AcceleratorsOrNodes if selection.nodes.iter().any(|node| accelerators(node) > 0) => {
                ResourceKind::Accelerator
            }
            _ => ResourceKind::Node,
        };
        let kinds: Vec<ResourceKind> = selections.iter().map(kind).collect();
        let by_node = kinds.contains(&ResourceKind::Node);
        reject_overlap(inventory, selections, &kinds, by_node)?;
        let mut pool = Pool {
            groups: Arc::new([]),
            blocks: Vec::new(),
            starts: vec![0],
            kinds: Vec::new(),
            num_nodes,
            by_node,
            excluded: RankSet::default(),
            excluded_nodes: HashMap::new(),
        };
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
                        kind => kind.name(),
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
                        let message = format!("node {node} has {most} pieces of hardware; the limit is {MAX_LOCAL}");
                        return Err(Diagnostic::new(Code::InvalidInventory, message).help("remove some of its configs"));
                    }
                    counts.iter().for_each(|&(node, count)| add(node.0, count));
                }
                (ResourceKind::Accelerator, _) => selection.nodes.iter().for_each(|node| add(node, accelerators(node))),
                _ => selection.nodes.iter().for_each(|node| add(node, 1)),
            }
            groups.push(Group { label: selection.label.clone(), kind });
        }
        if total > u64::from(MAX_RANK) {
            let message = format!("the selected node groups have {total} resources; the limit is {MAX_RANK}");
            return Err(Diagnostic::new(Code::InvalidInventory, message).help("select fewer node groups"));
        }
        pool.groups = groups.into();
        Ok(pool)
    }

    /// The same resources with some of them excluded. Their ranks do not change, but no process may use them.
    #[must_use]
    pub fn without(mut self, excluded: &[Excluded]) -> Self {
        for Excluded { nodes, accelerators } in excluded {
            for node in nodes.iter() {
                let known = self.excluded_nodes.entry(node).or_insert_with(|| Some(RankSet::default()));
                *known = match (known.take(), accelerators) {
                    (Some(before), Some(more)) => Some(before.union(more)),
                    _ => None,
                };
            }
        }
        if self.excluded_nodes.is_empty() {
            return self;
        }
        let mut ranges = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let (first, end) = self.bounds(index);
            let accelerated = self.groups[block.group as usize].kind == ResourceKind::Accelerator;
            match self.excluded_nodes.get(&block.node.0) {
                Some(None) => ranges.extend(RankRange::counted(first, end - first)),
                Some(Some(local)) if accelerated => ranges.extend(
                    local
                        .ranges()
                        .iter()
                        .filter_map(|range| RankRange::new(first + range.first(), (first + range.last()).min(end - 1))),
                ),
                _ => {}
            }
        }
        self.excluded = RankSet::from_ranges(ranges);
        self
    }

    /// The resource ranks that no process may use.
    pub fn excluded(&self) -> &RankSet {
        &self.excluded
    }

    /// The excluded resources in a range.
    pub(crate) fn excluded_in(&self, range: RankRange) -> RankSet {
        RankSet::from_ranges([range]).intersection(&self.excluded)
    }

    /// Some excluded resources as messages name them: `accelerator 3 of node 0`, `nodes 4-5`.
    pub(crate) fn excluded_names(&self, ranks: &RankSet) -> Vec<String> {
        let (mut nodes, mut names) = (Vec::new(), Vec::new());
        for rank in ranks.iter() {
            let index = self.block_of(ResourceRank(rank), 0);
            let NodeRank(node) = self.block(index).node;
            match self.excluded_nodes.get(&node) {
                Some(Some(_)) => names.push(format!("accelerator {} of node {node}", rank - self.bounds(index).0)),
                _ => nodes.push(node),
            }
        }
        if !nodes.is_empty() {
            let nodes: RankSet = nodes.into_iter().collect();
            names.push(format!("{} {nodes}", plural(nodes.len(), "node")));
        }
        names
    }

    /// The selected groups, in the order written.
    pub fn groups(&self) -> &Arc<[Group]> {
        &self.groups
    }

    /// The number of resources; their ranks are `0..len`.
    pub fn len(&self) -> u32 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether the pool has no resource.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The number of nodes of the cluster.
    pub fn num_nodes(&self) -> u32 {
        self.num_nodes
    }

    /// Reject a pool that counts nodes.
    ///
    /// # Errors
    /// `no-resources`.
    pub fn require_hardware(&self) -> Result<(), Diagnostic> {
        if !self.by_node {
            return Ok(());
        }
        let message = format!("{} no accelerators or other hardware, only nodes", self.has());
        Err(Diagnostic::new(Code::NoResources, message)
            .help("select a group with hardware, or place by node with NodePlacementStrategy"))
    }

    /// Whether the pool counts nodes.
    pub fn by_node(&self) -> bool {
        self.by_node
    }

    /// The block at this index.
    pub fn block(&self, index: usize) -> Block {
        self.blocks[index]
    }

    /// The resource ranks of a block: the first, and the one after the last.
    pub fn bounds(&self, index: usize) -> (u32, u32) {
        (self.starts[index], self.starts[index + 1])
    }

    /// The largest number of resources of one group on one node.
    pub fn most_on_a_node(&self) -> u32 {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    /// The name of a hardware type: `NV_GPU`, `Franka`.
    pub fn kind_name(&self, kind: u32) -> &str {
        self.kinds.get(kind as usize).map_or("", String::as_str)
    }

    /// The index of the block that contains a resource rank below [`Pool::len`]. A binary search, unless the hint is that
    /// block or the one before it.
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

    /// The blocks by kind and node, to find the rank of a resource.
    pub(crate) fn by_place(&self) -> ByPlace<'_> {
        let kind = |block: &Block| &self.groups[block.group as usize].kind;
        let mut blocks: Vec<_> =
            (0..).zip(&self.blocks).map(|(index, block)| (kind(block), block.node, index)).collect();
        blocks.sort_unstable();
        ByPlace { pool: self, blocks, last: 0 }
    }

    /// The noun for this many resources.
    pub fn noun(&self, count: u32) -> Cow<'static, str> {
        let mut kinds = self.groups.iter().map(|group| &group.kind);
        match kinds.next() {
            Some(first) if kinds.all(|kind| kind == first) => first.noun(count),
            _ => plural(count, "resource"),
        }
    }

    /// The groups as the subject of a message: `node group `x` has`.
    pub fn has(&self) -> String {
        let labels: Vec<_> = self.groups.iter().map(|group| format!("`{}`", group.label)).collect();
        match labels.as_slice() {
            [label] => format!("node group {label} has"),
            labels => format!("node groups {} have", labels.join(", ")),
        }
    }
}

/// The blocks of a pool by kind and node; a node has one block of each kind.
pub(crate) struct ByPlace<'a> {
    pool: &'a Pool,
    blocks: Vec<(&'a ResourceKind, NodeRank, usize)>,
    /// The position of the last result, which is often the next one.
    last: usize,
}

impl ByPlace<'_> {
    /// The rank of a resource with this kind, node and local index.
    pub fn rank(&mut self, kind: &ResourceKind, node: NodeRank, local: u32) -> Option<u32> {
        let holds = |at: usize| self.blocks.get(at).is_some_and(|block| (block.0, block.1) == (kind, node));
        if !holds(self.last) {
            self.last = self.blocks.partition_point(|block| (block.0, block.1) < (kind, node));
        }
        let (first, end) = self.pool.bounds(self.blocks.get(self.last).filter(|_| holds(self.last))?.2);
        Some(first + local).filter(|&rank| rank < end)
    }
}
