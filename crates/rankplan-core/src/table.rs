//! One row per process, stored as columns.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{NodeRank, ProcessRank};
use crate::inventory::Inventory;
use crate::rank_set::{RankRange, RankSet};
use crate::selection::{Group, ResourceKind};
use crate::taken::Taken;
use crate::words::count;

/// Where the processes of one component run.
///
/// 16 bytes per row and 2 per resource; values that follow from these are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(crate) groups: Arc<[Group]>,
    /// By stretch of rows placed through one group: the first row, and the group.
    pub(crate) group_starts: Vec<(u32, u32)>,
    pub(crate) cluster_node_rank: Vec<u32>,
    pub(crate) placement_node_rank: Vec<u32>,
    pub(crate) local_rank: Vec<u32>,
    /// By placement node rank.
    pub(crate) local_world_size: Vec<u32>,
    /// By row, the index of its first device; the last entry is the number of devices. Empty if placed by node.
    pub(crate) device_starts: Vec<u32>,
    /// Local indices.
    pub(crate) devices: Vec<u16>,
    /// Devices on another node than their process: index in `devices`, and the node. Ascending, usually empty.
    pub(crate) elsewhere: Vec<(u32, u32)>,
}

/// Where one process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Process rank.
    pub rank: ProcessRank,
    /// Node rank in the cluster.
    pub cluster_node_rank: NodeRank,
    /// Index of the node among the component's nodes, in order of first use.
    pub placement_node_rank: u32,
    /// Index among the component's processes on the node.
    pub local_rank: u32,
    /// Number of the component's processes on the node.
    pub local_world_size: u32,
    /// Local indices of its resources; empty if placed by node.
    pub devices: &'a [u16],
    /// Its resources on other nodes: index in [`Table::devices`], and the node.
    pub elsewhere: &'a [(u32, u32)],
    /// Index in [`Table::devices`] of its first device.
    pub first_device: u32,
    /// Index in [`Table::groups`] of the group that selected the node.
    pub group: u32,
}

impl<'a> Row<'a> {
    /// A resource that the process has twice, if any.
    pub fn repeats(&self) -> Option<(NodeRank, u16)> {
        if self.elsewhere.is_empty() && self.devices.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let mut seen = BTreeSet::new();
        self.places().find(|place| !seen.insert(*place))
    }

    /// All its resources in order: node and local index.
    pub fn places(&self) -> impl Iterator<Item = (NodeRank, u16)> + use<'a> {
        places(self.cluster_node_rank, self.first_device, self.devices, self.elsewhere)
    }
}

/// Resources in order: node and local index. `first_device` is the index of the first one; `elsewhere` has the index and
/// the node of each resource that is not on the home node.
pub fn places<'a>(
    home: NodeRank,
    first_device: u32,
    devices: &'a [u16],
    elsewhere: &'a [(u32, u32)],
) -> impl Iterator<Item = (NodeRank, u16)> + use<'a> {
    let mut elsewhere = elsewhere.iter().peekable();
    (first_device..).zip(devices).map(move |(index, &local)| {
        let away = elsewhere.next_if(|&&(device, _)| device == index);
        (away.map_or(home, |&(_, node)| NodeRank(node)), local)
    })
}

impl Table {
    /// The number of rows.
    pub fn len(&self) -> u32 {
        self.cluster_node_rank.len() as u32
    }

    /// Whether the table has no row.
    pub fn is_empty(&self) -> bool {
        self.cluster_node_rank.is_empty()
    }

    /// The row of a process, if it exists.
    pub fn row(&self, rank: ProcessRank) -> Option<Row<'_>> {
        let index = rank.0 as usize;
        let placement_node_rank = *self.placement_node_rank.get(index)?;
        let (_, group) = self.stretch_of(rank.0);
        let devices = self.devices_of(rank);
        let away = |device: usize| self.elsewhere.partition_point(|&(other, _)| (other as usize) < device);
        let elsewhere =
            if self.elsewhere.is_empty() { &[][..] } else { &self.elsewhere[away(devices.start)..away(devices.end)] };
        Some(Row {
            rank,
            cluster_node_rank: NodeRank(self.cluster_node_rank[index]),
            placement_node_rank,
            local_rank: self.local_rank[index],
            local_world_size: self.local_world_size[placement_node_rank as usize],
            first_device: devices.start as u32,
            devices: &self.devices[devices],
            elsewhere,
            group,
        })
    }

    /// The stretch of rows around a row that were placed through one group, and the group.
    pub(crate) fn stretch_of(&self, row: u32) -> (Range<u32>, u32) {
        let after = self.group_starts.partition_point(|&(first, _)| first <= row);
        let (start, group) = after.checked_sub(1).map_or((0, 0), |index| self.group_starts[index]);
        (start..self.group_starts.get(after).map_or(self.len(), |&(next, _)| next), group)
    }

    /// Check that an inventory has the nodes and accelerators of all rows.
    ///
    /// # Errors
    /// `node-out-of-range` or `resource-out-of-range` for the first one that it lacks.
    pub fn fits(&self, inventory: &Inventory) -> Result<(), Diagnostic> {
        let Some((rank, node, index)) = self.outside(inventory) else { return Ok(()) };
        let (code, message) = match index {
            None => {
                let has = count(inventory.num_nodes(), "node");
                (Code::NodeOutOfRange, format!("process {rank} is on node {node}, but the inventory has {has}"))
            }
            Some(index) => {
                let has =
                    count(inventory.spec(node).map_or(0, |spec| spec.accelerator_ids.len() as u32), "accelerator");
                (
                    Code::ResourceOutOfRange,
                    format!("process {rank} uses accelerator {index} of node {node}, which has {has}"),
                )
            }
        };
        Err(Diagnostic::new(code, message).help("place the component again on this inventory"))
    }

    /// The first node or accelerator that an inventory lacks: process, node, and local index.
    pub(crate) fn outside(&self, inventory: &Inventory) -> Option<(ProcessRank, NodeRank, Option<u16>)> {
        let row_outside = |row: Row<'_>| {
            let home = row.cluster_node_rank;
            if inventory.spec(home).is_none() {
                return Some((row.rank, home, None));
            }
            let accelerated = self.groups[row.group as usize].kind == ResourceKind::Accelerator;
            row.places().filter(|_| accelerated).find_map(|(node, index)| match inventory.spec(node) {
                None => Some((row.rank, node, None)),
                Some(spec) if usize::from(index) >= spec.accelerator_ids.len() => Some((row.rank, node, Some(index))),
                Some(_) => None,
            })
        };
        (0..self.len()).filter_map(|rank| self.row(ProcessRank(rank))).find_map(row_outside)
    }

    /// The accelerators that these processes use, counted node by node over the whole cluster.
    pub fn accelerators(&self, inventory: &Inventory, processes: impl Iterator<Item = u32>) -> RankSet {
        let rows = processes.filter_map(|rank| self.row(ProcessRank(rank)));
        let rows = rows.filter(|row| self.groups[row.group as usize].kind == ResourceKind::Accelerator);
        rows.flat_map(|row| row.places())
            .map(|(node, index)| inventory.first_accelerator(node) + u32::from(index))
            .collect()
    }

    /// The accelerators of all processes in the order of their ranks, counted node by node over the whole cluster; `None` if
    /// they are too many.
    pub fn taken(&self, inventory: &Inventory) -> Option<Taken> {
        let rows = (0..self.len()).filter_map(|rank| self.row(ProcessRank(rank)));
        let rows = rows.filter(|row| self.groups[row.group as usize].kind == ResourceKind::Accelerator);
        let places = rows.flat_map(|row| row.places());
        let accelerators = places.filter_map(|(node, index)| inventory.resource(node, index.into()));
        Taken::from_ranges(accelerators.filter_map(|rank| RankRange::new(rank, rank)))
    }

    /// The position of a process's devices in [`Table::devices`].
    pub fn devices_of(&self, rank: ProcessRank) -> Range<usize> {
        match self.device_starts.get(rank.0 as usize..rank.0 as usize + 2) {
            Some(&[start, end]) => start as usize..end as usize,
            _ => 0..0,
        }
    }

    /// By row, the node rank in the cluster.
    pub fn cluster_node_rank(&self) -> &[u32] {
        &self.cluster_node_rank
    }

    /// By row, the index of its node among the component's nodes.
    pub fn placement_node_rank(&self) -> &[u32] {
        &self.placement_node_rank
    }

    /// By row, the index among the component's processes on the node.
    pub fn local_rank(&self) -> &[u32] {
        &self.local_rank
    }

    /// By placement node rank, the number of the component's processes on the node.
    pub fn local_world_size(&self) -> &[u32] {
        &self.local_world_size
    }

    /// By row, the index of its first device in [`Table::devices`]; the last entry is their number. Empty if placed by node.
    pub fn device_starts(&self) -> &[u32] {
        &self.device_starts
    }

    /// The local indices of all resources, row by row.
    pub fn devices(&self) -> &[u16] {
        &self.devices
    }

    /// Devices on another node than their process: index in [`Table::devices`], and the node.
    pub fn elsewhere(&self) -> &[(u32, u32)] {
        &self.elsewhere
    }

    /// The node groups of the rows.
    pub fn groups(&self) -> &Arc<[Group]> {
        &self.groups
    }

    /// By stretch of rows placed through one group: the first row, and the index of the group.
    pub fn group_starts(&self) -> &[(u32, u32)] {
        &self.group_starts
    }

    /// The memory of the columns in bytes.
    pub fn bytes(&self) -> usize {
        let words = self.cluster_node_rank.capacity()
            + self.placement_node_rank.capacity()
            + self.local_rank.capacity()
            + self.local_world_size.capacity()
            + self.device_starts.capacity()
            + 2 * (self.group_starts.capacity() + self.elsewhere.capacity());
        4 * words + 2 * self.devices.capacity()
    }
}
