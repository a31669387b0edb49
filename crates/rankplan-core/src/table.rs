//! One row a process, kept as columns.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{NodeRank, ProcessRank};
use crate::inventory::Inventory;
use crate::pool::{Group, ResourceKind, count};
use crate::rank_set::RankSet;

/// Where the processes of one component run.
///
/// 16 bytes a row and 2 a resource; what can be had from these is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(crate) groups: Arc<[Group]>,
    /// First row of each stretch of rows that were placed through one group, and the group.
    pub(crate) group_starts: Vec<(u32, u32)>,
    pub(crate) cluster_node_rank: Vec<u32>,
    pub(crate) placement_node_rank: Vec<u32>,
    pub(crate) local_rank: Vec<u32>,
    /// By placement node rank.
    pub(crate) local_world_size: Vec<u32>,
    /// By row, the index of its first device; and at the end, the number of devices. Empty when placed by node.
    pub(crate) device_starts: Vec<u32>,
    /// Local indices.
    pub(crate) devices: Vec<u16>,
    /// Devices that are not on the node of their process: index in `devices`, and the node. Ascending, mostly empty.
    pub(crate) elsewhere: Vec<(u32, u32)>,
}

/// Where one process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Process rank.
    pub rank: ProcessRank,
    /// Node rank in the cluster.
    pub cluster_node_rank: NodeRank,
    /// Index of the node among those that the component uses, in order of first use.
    pub placement_node_rank: u32,
    /// Index among the component's processes on the node.
    pub local_rank: u32,
    /// Number of the component's processes on the node.
    pub local_world_size: u32,
    /// Local indices of its resources; empty when placed by node.
    pub devices: &'a [u16],
    /// Those of them that are on other nodes: index in [`Table::devices`], and the node.
    pub elsewhere: &'a [(u32, u32)],
    /// Index in [`Table::devices`] of its first device.
    pub first_device: u32,
    /// Index in [`Table::groups`] of the group through which the node was selected.
    pub group: u32,
}

impl<'a> Row<'a> {
    /// A resource that it names twice.
    pub fn repeats(&self) -> Option<(NodeRank, u16)> {
        if self.elsewhere.is_empty() && self.devices.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let mut seen = BTreeSet::new();
        self.places().find(|place| !seen.insert(*place))
    }

    /// All its resources, in their order: node, and local index there.
    pub fn places(&self) -> impl Iterator<Item = (NodeRank, u16)> + use<'a> {
        places(self.cluster_node_rank, self.first_device, self.devices, self.elsewhere)
    }
}

/// Resources, in their order: node, and local index there. `first_device` is the index of the first of them, `elsewhere`
/// has the index of each that is not at home, and its node.
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

/// The columns that a table can be made of again; see [`Table`] for what they hold.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The groups that rows were placed through.
    pub groups: Vec<Group>,
    /// First row of each stretch of rows of one group, and the index of the group.
    pub group_starts: Vec<(u32, u32)>,
    /// By row.
    pub cluster_node_rank: Vec<u32>,
    /// By row, and one more; empty when placed by node.
    pub device_starts: Vec<u32>,
    /// Local indices.
    pub devices: Vec<u16>,
    /// Index of each device that is not on the node of its process, and the node.
    pub elsewhere: Vec<(u32, u32)>,
}

impl Table {
    /// A table from its columns.
    ///
    /// # Errors
    /// `invalid-plan` when the columns contradict each other or the inventory.
    pub fn from_columns(columns: Columns, inventory: &Inventory) -> Result<Self, Diagnostic> {
        let Columns { groups, group_starts, cluster_node_rank, device_starts, devices, elsewhere } = columns;
        let refuse = |message: &str| Err(Diagnostic::new(Code::InvalidPlan, message));
        let rows = cluster_node_rank.len();
        let starts_fit = device_starts.is_empty() && devices.is_empty()
            || device_starts.len() == rows + 1
                && device_starts.first() == Some(&0)
                && device_starts.last().is_some_and(|&end| end as usize == devices.len())
                && device_starts.is_sorted();
        if !starts_fit {
            return refuse("the devices do not fit the rows");
        }
        let groups_fit = group_starts.first().is_none_or(|&(first, _)| first == 0)
            && group_starts.is_empty() == (rows == 0)
            && group_starts.is_sorted_by(|a, b| a.0 < b.0)
            && group_starts.iter().all(|&(first, group)| (first as usize) < rows && (group as usize) < groups.len());
        if !groups_fit {
            return refuse("the node groups do not fit the rows");
        }
        let elsewhere_fits = elsewhere.is_sorted_by(|a, b| a.0 < b.0)
            && elsewhere
                .iter()
                .all(|&(device, node)| (device as usize) < devices.len() && node < inventory.num_nodes());
        if !elsewhere_fits {
            return refuse("the devices on other nodes do not fit the rows");
        }
        let mut table = Table {
            groups: groups.into(),
            group_starts,
            cluster_node_rank,
            placement_node_rank: Vec::with_capacity(rows),
            local_rank: Vec::with_capacity(rows),
            local_world_size: Vec::new(),
            device_starts,
            devices,
            elsewhere,
        };
        let mut placement_node = vec![None; inventory.num_nodes() as usize];
        for &node in &table.cluster_node_rank {
            let Some(placement) = placement_node.get_mut(node as usize) else {
                return refuse("a row is on a node that the inventory does not have");
            };
            let placement = *placement.get_or_insert_with(|| {
                table.local_world_size.push(0_u32);
                table.local_world_size.len() as u32 - 1
            });
            table.placement_node_rank.push(placement);
            table.local_rank.push(table.local_world_size[placement as usize]);
            table.local_world_size[placement as usize] += 1;
        }
        if table.outside(inventory).is_some() {
            return refuse("a row has an accelerator that its node does not have");
        }
        for row in (0..table.len()).filter_map(|rank| table.row(ProcessRank(rank))) {
            let kind = &table.groups[row.group as usize].kind;
            if (*kind == ResourceKind::Node) != row.devices.is_empty() || row.repeats().is_some() {
                return refuse("a row has no resources, or names one twice");
            }
            let away = row.elsewhere.iter().all(|&(_, node)| node != row.cluster_node_rank.0);
            let starts_away = row.elsewhere.first().is_some_and(|&(device, _)| device == row.first_device);
            if !away || starts_away || !row.elsewhere.is_empty() && *kind != ResourceKind::Accelerator {
                return refuse("the devices on other nodes do not fit the rows");
            }
        }
        Ok(table)
    }

    /// How many rows there are.
    pub fn len(&self) -> u32 {
        self.cluster_node_rank.len() as u32
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.cluster_node_rank.is_empty()
    }

    /// The row of a process, if there is such a process.
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

    /// The rows that were placed through the same group as a row and next to it, and the group.
    pub(crate) fn stretch_of(&self, row: u32) -> (Range<u32>, u32) {
        let after = self.group_starts.partition_point(|&(first, _)| first <= row);
        let (start, group) = after.checked_sub(1).map_or((0, 0), |index| self.group_starts[index]);
        (start..self.group_starts.get(after).map_or(self.len(), |&(next, _)| next), group)
    }

    /// Whether the nodes and accelerators of all rows are in an inventory.
    ///
    /// # Errors
    /// `node-out-of-range` or `resource-out-of-range` for the first that is not.
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
                    format!("process {rank} has accelerator {index} of node {node}, which has {has}"),
                )
            }
        };
        Err(Diagnostic::new(code, message).help("place the component again on this inventory"))
    }

    /// The first process that has a node or an accelerator which an inventory does not have, the node, and the index.
    fn outside(&self, inventory: &Inventory) -> Option<(ProcessRank, NodeRank, Option<u16>)> {
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

    /// Where the devices of a process are in [`Table::devices`].
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

    /// By row, the index of its node among those that the component uses.
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

    /// By row, the index of its first device in [`Table::devices`]; and at the end, their number. Empty when placed by node.
    pub fn device_starts(&self) -> &[u32] {
        &self.device_starts
    }

    /// The local indices of the resources of all rows.
    pub fn devices(&self) -> &[u16] {
        &self.devices
    }

    /// Devices that are not on the node of their process: index in [`Table::devices`], and the node.
    pub fn elsewhere(&self) -> &[(u32, u32)] {
        &self.elsewhere
    }

    /// The groups that rows were placed through.
    pub fn groups(&self) -> &Arc<[Group]> {
        &self.groups
    }

    /// The first row of each stretch of rows that were placed through one group, and the index of the group.
    pub fn group_starts(&self) -> &[(u32, u32)] {
        &self.group_starts
    }

    /// Bytes held by the columns.
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
