//! The accelerators of each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{MAX_LOCAL, MAX_NODES, MAX_RANK, NodeRank};
use crate::rank_set::{RankRange, RankSet};

/// The accelerators of a node. Equal nodes share one spec.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSpec {
    /// `NV_GPU`, ...; `NO_ACCEL` for a node without accelerators.
    pub accelerator_type: String,
    /// The node's own name of each accelerator, by local index: `["0", "1"]`, UUIDs, MIG ids.
    pub accelerator_ids: Vec<String>,
}

/// What nodes are called, by which trainers sort them. Equal nodes share one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeNames {
    /// Its address.
    pub ip: Option<String>,
    /// Its hostname.
    pub hostname: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// The accelerators of each node.
#[derive(Clone, Debug)]
pub struct Inventory {
    specs: Vec<Arc<NodeSpec>>,
    /// By spec.
    names: Vec<Arc<NodeNames>>,
    /// By node rank: the index of its spec.
    nodes: Vec<u32>,
    /// By node rank, the number of accelerators on earlier nodes; the last entry is the number of all.
    starts: Vec<u32>,
}

impl PartialEq for Inventory {
    /// Whether the nodes have the same accelerators.
    fn eq(&self, other: &Self) -> bool {
        (&self.specs, &self.nodes) == (&other.specs, &other.nodes)
    }
}

impl Eq for Inventory {}

impl Inventory {
    /// The inventory of these nodes with their specs.
    ///
    /// # Errors
    /// `invalid-inventory` unless the node ranks are `0..n`, each in one entry, and nodes and accelerators are within the
    /// limits.
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
                return Err(refuse(format!("node rank {count} is missing, but {} is listed", range.first()))
                    .help("number the nodes from 0, without gaps"));
            }
            count = range.last() + 1;
        }
        if let Some(most) =
            entries.iter().map(|(_, spec)| spec.accelerator_ids.len()).max().filter(|&n| n > MAX_LOCAL as usize)
        {
            return Err(refuse(format!("a node has {most} accelerators; the limit is {MAX_LOCAL}"))
                .help("reduce its accelerators"));
        }
        if count > MAX_NODES {
            return Err(
                refuse(format!("the cluster has {count} nodes; the limit is {MAX_NODES}")).help("list fewer nodes")
            );
        }
        let total: u64 =
            entries.iter().map(|(ranks, spec)| u64::from(ranks.len()) * spec.accelerator_ids.len() as u64).sum();
        if total > u64::from(MAX_RANK) {
            return Err(refuse(format!("the cluster has {total} accelerators; the limit is {MAX_RANK}"))
                .help("list fewer nodes or accelerators"));
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
        let names = vec![Arc::default(); entries.len()];
        Ok(Inventory { specs: entries.into_iter().map(|(_, spec)| Arc::new(spec)).collect(), names, nodes, starts })
    }

    /// The same nodes with these names, by the entry that they were made of.
    #[must_use]
    pub fn named(mut self, names: Vec<NodeNames>) -> Self {
        for (known, names) in self.names.iter_mut().zip(names) {
            *known = Arc::new(names);
        }
        self
    }

    fn names(&self, node: NodeRank) -> Option<&NodeNames> {
        self.nodes.get(node.0 as usize).map(|&index| &*self.names[index as usize])
    }

    /// The address of a node, if it is known.
    pub fn address(&self, node: NodeRank) -> Option<&str> {
        self.names(node)?.ip.as_deref()
    }

    /// The hostname of a node, if it is known.
    pub fn hostname(&self, node: NodeRank) -> Option<&str> {
        self.names(node)?.hostname.as_deref()
    }

    /// A label of a node, if it has it.
    pub fn label(&self, node: NodeRank, key: &str) -> Option<&str> {
        self.names(node)?.labels.get(key).map(String::as_str)
    }

    /// The nodes of these ranks, numbered from 0 in this order; `None` for an unknown rank, or for more nodes than there are.
    pub fn reordered(&self, order: &[u32]) -> Option<Self> {
        if order.len() > self.nodes.len() {
            return None;
        }
        let mut found =
            Inventory { specs: Vec::new(), names: Vec::new(), nodes: Vec::with_capacity(order.len()), starts: vec![0] };
        let mut known = vec![None; self.specs.len()];
        let mut end = 0;
        for &node in order {
            let spec = *self.nodes.get(node as usize)? as usize;
            let index = *known[spec].get_or_insert_with(|| {
                found.specs.push(self.specs[spec].clone());
                found.names.push(self.names[spec].clone());
                found.specs.len() as u32 - 1
            });
            found.nodes.push(index);
            end += self.specs[spec].accelerator_ids.len() as u32;
            found.starts.push(end);
        }
        Some(found)
    }

    /// The number of nodes.
    pub fn num_nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// All accelerators, counted node by node.
    pub fn accelerators(&self) -> RankSet {
        RankSet::first_ranks(self.starts.last().copied().unwrap_or(0))
    }

    /// The index of a node's first accelerator among all accelerators of the cluster.
    pub(crate) fn first_accelerator(&self, node: NodeRank) -> u32 {
        self.starts.get(node.0 as usize).copied().unwrap_or(0)
    }

    /// The number of accelerators of a node; 0 for an unknown one.
    pub fn num_accelerators(&self, node: NodeRank) -> u32 {
        match self.starts.get(node.0 as usize..node.0 as usize + 2) {
            Some(&[start, end]) => end - start,
            _ => 0,
        }
    }

    /// The accelerators of a node, counted node by node over the cluster, if it has any.
    pub fn accelerators_of(&self, node: NodeRank) -> Option<RankRange> {
        RankRange::counted(self.first_accelerator(node), self.num_accelerators(node))
    }

    /// The node's own names of its accelerators, by local index.
    pub fn accelerator_ids(&self, node: NodeRank) -> &[String] {
        self.spec(node).map_or(&[], |spec| &spec.accelerator_ids)
    }

    /// An accelerator of a node, counted node by node over the cluster; `None` if the node lacks it.
    pub fn resource(&self, node: NodeRank, index: u32) -> Option<u32> {
        (index < self.num_accelerators(node)).then(|| self.first_accelerator(node) + index)
    }

    /// The node of an accelerator, and its local index there: the inverse of [`Inventory::resource`].
    pub fn place(&self, resource: u32) -> Option<(NodeRank, u32)> {
        let node = self.starts.partition_point(|&start| start <= resource).checked_sub(1)?;
        (node < self.nodes.len()).then(|| (NodeRank(node as u32), resource - self.starts[node]))
    }

    /// The nodes of accelerators in a row, each with the local indices of those that it has. Accelerators that no node has
    /// are left out.
    pub fn nodes_of(&self, accelerators: RankRange) -> impl Iterator<Item = (NodeRank, RankRange)> + use<'_> {
        let first = self.starts.partition_point(|&start| start <= accelerators.first()).saturating_sub(1);
        let ends = self.starts[first..].windows(2).zip(first as u32..);
        ends.take_while(move |(ends, _)| ends[0] <= accelerators.last()).filter_map(move |(ends, node)| {
            let last = ends[1].checked_sub(1)?.min(accelerators.last()).checked_sub(ends[0])?;
            let local = RankRange::new(accelerators.first().saturating_sub(ends[0]), last)?;
            Some((NodeRank(node), local))
        })
    }

    /// These accelerators, counted node by node, as local indices on their nodes.
    pub fn by_node(&self, accelerators: &RankSet) -> Vec<(NodeRank, RankSet)> {
        let mut found: Vec<(NodeRank, Vec<RankRange>)> = Vec::new();
        for (node, local) in accelerators.ranges().iter().flat_map(|&range| self.nodes_of(range)) {
            match found.last_mut().filter(|(known, _)| *known == node) {
                Some((_, ranges)) => ranges.push(local),
                None => found.push((node, vec![local])),
            }
        }
        found.into_iter().map(|(node, ranges)| (node, RankSet::from_ranges(ranges))).collect()
    }

    /// The nodes by their number of accelerators, ascending.
    pub fn nodes_by_size(&self) -> BTreeMap<u32, RankSet> {
        let mut sizes: BTreeMap<u32, Vec<RankRange>> = BTreeMap::new();
        let mut first = 0;
        for node in 0..self.num_nodes() {
            let size = self.num_accelerators(NodeRank(node));
            if self.num_accelerators(NodeRank(node + 1)) != size || node + 1 == self.num_nodes() {
                sizes.entry(size).or_default().extend(RankRange::new(first, node));
                first = node + 1;
            }
        }
        sizes.into_iter().map(|(size, ranges)| (size, RankSet::from_ranges(ranges))).collect()
    }

    /// Each spec and the nodes that have it.
    pub fn entries(&self) -> impl Iterator<Item = (RankSet, &NodeSpec)> {
        let mut ranks = vec![Vec::new(); self.specs.len()];
        for (node, &spec) in self.nodes.iter().enumerate() {
            ranks[spec as usize].push(node as u32);
        }
        ranks.into_iter().zip(&self.specs).map(|(ranks, spec)| (ranks.into_iter().collect(), &**spec))
    }

    /// The accelerators of a node, if it exists.
    pub fn spec(&self, node: NodeRank) -> Option<&Arc<NodeSpec>> {
        self.nodes.get(node.0 as usize).map(|&index| &self.specs[index as usize])
    }
}
