//! The nodes of a cluster, by rank.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use smol_str::SmolStr;

use crate::amounts::Amount;
use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{MAX_LOCAL, MAX_NODES, MAX_RANK, NodeRank};
use crate::node::{IDS, Node, NodeSpec};
use crate::rank_set::{RankRange, RankSet};
use crate::read::value::Value;

/// The records of the nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Inventory {
    records: Vec<Arc<Node>>,
    /// By node rank: the index of its record.
    nodes: Vec<u32>,
    /// By node rank, the number of accelerators on earlier nodes; the last entry is the number of all.
    starts: Vec<u32>,
    /// The nodes sorted by address, each order from its first use on.
    addresses: AddressOrders,
}

/// The nodes sorted by their addresses: by the text of these, and by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressOrders {
    pub text: OnceLock<Sorted>,
    pub number: OnceLock<Sorted>,
}

/// All nodes as a trainer sorts them.
#[derive(Clone, Debug)]
pub(crate) enum Sorted {
    /// A node lacks what the trainer sorts by.
    Unknown,
    /// The order of their ranks.
    Unchanged,
    /// Another order: the node ranks in it.
    Other(Arc<[u32]>),
}

/// Hardware of a node that must not be used: local indices of its accelerators, `None` for the whole node.
pub type Mark = (NodeRank, Option<RankSet>);

impl Inventory {
    /// The inventory of these nodes with their records. Those with the same record, not just an equal one, share it.
    ///
    /// # Errors
    /// `invalid-inventory` unless the node ranks are `0..n`, each in one entry, and nodes and accelerators are within the
    /// limits.
    pub fn new<R: Into<Arc<Node>>>(entries: Vec<(RankSet, R)>) -> Result<Self, Diagnostic> {
        let entries: Vec<(RankSet, Arc<Node>)> =
            entries.into_iter().map(|(ranks, record)| (ranks, record.into())).collect();
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
        let most = entries.iter().map(|(_, record)| record.num_accelerators()).max();
        if let Some(most) = most.filter(|&most| most > MAX_LOCAL) {
            return Err(refuse(format!("a node has {most} accelerators; the limit is {MAX_LOCAL}"))
                .help("reduce its accelerators"));
        }
        if count > MAX_NODES {
            return Err(
                refuse(format!("the cluster has {count} nodes; the limit is {MAX_NODES}")).help("list fewer nodes")
            );
        }
        let each =
            |(ranks, record): &(RankSet, Arc<Node>)| u64::from(ranks.len()) * u64::from(record.num_accelerators());
        let total: u64 = entries.iter().map(each).sum();
        if total > u64::from(MAX_RANK) {
            return Err(refuse(format!("the cluster has {total} accelerators; the limit is {MAX_RANK}"))
                .help("list fewer nodes or accelerators"));
        }
        let mut records: Vec<Arc<Node>> = Vec::new();
        let mut known = HashMap::new();
        let mut nodes = vec![0; count as usize];
        for (ranks, record) in entries {
            let next = records.len() as u32;
            // A record that nothing else holds is in no other entry.
            let index = match Arc::strong_count(&record) {
                1 => next,
                _ => *known.entry(Arc::as_ptr(&record)).or_insert(next),
            };
            if index == next {
                records.push(record);
            }
            for range in ranks.ranges() {
                nodes[range.first() as usize..=range.last() as usize].fill(index);
            }
        }
        Ok(Self::of(records, nodes))
    }

    /// The inventory of nodes with these records, each an index.
    fn of(records: Vec<Arc<Node>>, nodes: Vec<u32>) -> Self {
        let sizes: Vec<_> = records.iter().map(|record| record.num_accelerators()).collect();
        let mut starts = Vec::with_capacity(nodes.len() + 1);
        starts.push(0);
        let mut end = 0;
        for &index in &nodes {
            end += sizes[index as usize];
            starts.push(end);
        }
        Inventory { records, nodes, starts, addresses: AddressOrders::default() }
    }

    /// The nodes of these ranks, numbered from 0 in this order; `None` for an unknown rank, or for more nodes than there are.
    pub fn reordered(&self, order: &[u32]) -> Option<Self> {
        if order.len() > self.nodes.len() {
            return None;
        }
        let (mut records, mut nodes) = (Vec::new(), Vec::with_capacity(order.len()));
        let mut known = vec![None; self.records.len()];
        for &node in order {
            let record = *self.nodes.get(node as usize)? as usize;
            nodes.push(*known[record].get_or_insert_with(|| {
                records.push(self.records[record].clone());
                records.len() as u32 - 1
            }));
        }
        Some(Self::of(records, nodes))
    }

    /// The same nodes, those that are marked not healthy, or taken by this job. Unknown nodes are ignored.
    pub fn marked(&self, marks: &[Mark], job: Option<&str>) -> Self {
        let mut records = self.records.clone();
        let mut nodes = self.nodes.clone();
        let mut known: HashMap<(u32, &Option<RankSet>), u32> = HashMap::new();
        for (node, local) in marks {
            let Some(record) = nodes.get_mut(node.0 as usize) else { continue };
            *record = *known.entry((*record, local)).or_insert_with(|| {
                let mut marked = Node::clone(&records[*record as usize]);
                marked.mark(local.as_ref(), job);
                records.push(Arc::new(marked));
                records.len() as u32 - 1
            });
        }
        // Records without nodes are left out.
        let mut index = vec![None; records.len()];
        let mut left = Vec::new();
        for record in &mut nodes {
            let at = *record as usize;
            *record = *index[at].get_or_insert_with(|| {
                left.push(records[at].clone());
                left.len() as u32 - 1
            });
        }
        Self::of(left, nodes)
    }

    /// The nodes sorted by address, as far as these orders were used.
    pub(crate) fn address_orders(&self) -> &AddressOrders {
        &self.addresses
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
        self.nodes_by(|node| self.num_accelerators(node))
    }

    /// The nodes by the CPUs that can be reserved on them, ascending; those whose CPUs are unknown come first.
    pub fn nodes_by_cpus(&self) -> BTreeMap<Option<Amount>, RankSet> {
        self.nodes_by(|node| self.record(node).and_then(|record| record.reservable.cpus))
    }

    /// The nodes by a key, in its order.
    fn nodes_by<Key: Ord + Copy>(&self, key: impl Fn(NodeRank) -> Key) -> BTreeMap<Key, RankSet> {
        let mut ranges: BTreeMap<Key, Vec<RankRange>> = BTreeMap::new();
        let mut first = 0;
        let last = self.num_nodes().saturating_sub(1);
        for node in 0..self.num_nodes() {
            let own = key(NodeRank(node));
            if node == last || key(NodeRank(node + 1)) != own {
                ranges.entry(own).or_default().extend(RankRange::new(first, node));
                first = node + 1;
            }
        }
        ranges.into_iter().map(|(key, ranges)| (key, RankSet::from_ranges(ranges))).collect()
    }

    /// Each record and the nodes that have it.
    pub fn entries(&self) -> impl Iterator<Item = (RankSet, &Arc<Node>)> {
        let mut ranks = vec![Vec::new(); self.records.len()];
        for (nodes, _, record) in self.runs() {
            ranks[record as usize].extend(RankRange::new(nodes.start, nodes.end - 1));
        }
        ranks.into_iter().zip(&self.records).map(|(ranges, record)| (RankSet::from_ranges(ranges), record))
    }

    /// The kinds of nodes, each with its nodes, in the order of their first nodes: records that are alike are one kind.
    pub fn kinds(&self) -> Vec<(RankSet, &Arc<Node>)> {
        let mut known: HashMap<(bool, &Node), usize> = HashMap::with_capacity(self.records.len());
        let mut kinds: Vec<(Vec<RankRange>, &Arc<Node>)> = Vec::new();
        for (nodes, record, _) in self.runs() {
            let kind = *known.entry((record.states(IDS), record)).or_insert_with(|| {
                kinds.push((Vec::new(), record));
                kinds.len() - 1
            });
            kinds[kind].0.extend(RankRange::new(nodes.start, nodes.end - 1));
        }
        kinds.into_iter().map(|(ranges, record)| (RankSet::from_ranges(ranges), record)).collect()
    }

    /// The kinds of nodes as plain values, as in an inventory file.
    pub fn described(&self) -> Value {
        Value::list(self.kinds().into_iter().map(|(ranks, record)| record.described(&ranks)))
    }

    /// Each run of nodes with one record, ascending.
    pub fn stretches(&self) -> impl Iterator<Item = (Range<u32>, &Arc<Node>)> {
        self.runs().map(|(nodes, record, _)| (nodes, record))
    }

    /// Each run of nodes with one record, the record, and its index.
    fn runs(&self) -> impl Iterator<Item = (Range<u32>, &Arc<Node>, u32)> {
        let mut start = 0;
        self.nodes.chunk_by(|one, other| one == other).map(move |run| {
            let nodes = start..start + run.len() as u32;
            start = nodes.end;
            (nodes, &self.records[run[0] as usize], run[0])
        })
    }

    /// The record of a node, if it exists.
    pub fn record(&self, node: NodeRank) -> Option<&Arc<Node>> {
        self.nodes.get(node.0 as usize).map(|&index| &self.records[index as usize])
    }

    /// The accelerators of a node, if it exists.
    pub fn spec(&self, node: NodeRank) -> Option<&Arc<NodeSpec>> {
        self.record(node).map(|record| &record.accelerators)
    }

    /// The address of a node, if it is known.
    pub fn address(&self, node: NodeRank) -> Option<&str> {
        self.record(node)?.ip.as_deref()
    }

    /// The hostname of a node, if it is known.
    pub fn hostname(&self, node: NodeRank) -> Option<&str> {
        self.record(node)?.hostname.as_deref()
    }

    /// The value of a label of a node, if it has it.
    pub fn label(&self, node: NodeRank, key: &str) -> Option<&str> {
        self.record(node)?.labels.get(key).map(SmolStr::as_str)
    }

    /// The keys of the labels of all nodes, sorted, with the number of nodes that have each.
    pub fn label_keys(&self) -> BTreeMap<&str, u32> {
        let mut keys = BTreeMap::new();
        for (nodes, record) in self.stretches() {
            for (key, _) in record.labels.iter() {
                *keys.entry(key.as_str()).or_default() += nodes.end - nodes.start;
            }
        }
        keys
    }

    /// The hardware that is not healthy, or that another job has, by node.
    pub fn broken(&self) -> Vec<Mark> {
        let mark = |record: &Node| match record {
            Node { healthy: false, .. } | Node { taken: Some(_), .. } => Some(None),
            record if record.unhealthy.is_empty() => None,
            record => Some(Some(record.unhealthy.clone())),
        };
        let marked = self.stretches().filter_map(|(nodes, record)| Some((nodes, mark(record)?)));
        marked.flat_map(|(nodes, local)| nodes.map(move |node| (NodeRank(node), local.clone()))).collect()
    }
}

impl PartialEq for Inventory {
    /// Whether the nodes of each rank are alike, however the records were shared.
    fn eq(&self, other: &Self) -> bool {
        let mut alike = HashSet::new();
        std::ptr::eq(self, other)
            || self.nodes.len() == other.nodes.len()
                && self.nodes.iter().zip(&other.nodes).all(|(&mine, &theirs)| {
                    let (one, other) = (&self.records[mine as usize], &other.records[theirs as usize]);
                    Arc::ptr_eq(one, other) || alike.contains(&(mine, theirs)) || {
                        alike.insert((mine, theirs));
                        one.is_like(other)
                    }
                })
    }
}

impl Eq for Inventory {}
