//! Saved columns to a table.

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::ProcessRank;
use crate::inventory::Inventory;
use crate::selection::{Group, ResourceKind};
use crate::table::Table;

/// The columns of a saved table. A table derives the others from them.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The node groups of the rows.
    pub groups: Vec<Group>,
    /// By stretch of rows placed through one group: the first row, and the index of the group.
    pub group_starts: Vec<(u32, u32)>,
    /// By row, the node rank in the cluster.
    pub cluster_node_rank: Vec<u32>,
    /// By row, the index of its first device; the last entry is the number of devices. Empty if placed by node.
    pub device_starts: Vec<u32>,
    /// Local indices.
    pub devices: Vec<u16>,
    /// Devices on another node than their process: index in `devices`, and the node.
    pub elsewhere: Vec<(u32, u32)>,
}

impl Table {
    /// The table of these columns.
    ///
    /// # Errors
    /// `invalid-plan` if the columns contradict each other or the inventory.
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
            return refuse("`device_starts` and `devices` do not match the rows");
        }
        let groups_fit = group_starts.first().is_none_or(|&(first, _)| first == 0)
            && group_starts.is_empty() == (rows == 0)
            && group_starts.is_sorted_by(|a, b| a.0 < b.0)
            && group_starts.iter().all(|&(first, group)| (first as usize) < rows && (group as usize) < groups.len());
        if !groups_fit {
            return refuse("`group_starts` does not match the rows and node groups");
        }
        let elsewhere_fits = elsewhere.is_sorted_by(|a, b| a.0 < b.0)
            && elsewhere
                .iter()
                .all(|&(device, node)| (device as usize) < devices.len() && node < inventory.num_nodes());
        if !elsewhere_fits {
            return refuse("`elsewhere` does not match the rows and devices");
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
                return refuse("a row is on a node that the inventory lacks");
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
            return refuse("a row has an accelerator that its node lacks");
        }
        for row in (0..table.len()).filter_map(|rank| table.row(ProcessRank(rank))) {
            let kind = &table.groups[row.group as usize].kind;
            if (*kind == ResourceKind::Node) != row.devices.is_empty() || row.repeats().is_some() {
                return refuse("a row has no resource, or has one twice");
            }
            let away = row.elsewhere.iter().all(|&(_, node)| node != row.cluster_node_rank.0);
            let starts_away = row.elsewhere.first().is_some_and(|&(device, _)| device == row.first_device);
            if !away || starts_away || !row.elsewhere.is_empty() && *kind != ResourceKind::Accelerator {
                return refuse("`elsewhere` does not match the rows and devices");
            }
        }
        Ok(table)
    }
}
