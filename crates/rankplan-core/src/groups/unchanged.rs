//! What two placements of a component have in common.
//!
//! Most slots of a large job stay when some of it changes. They are found here all at once, so that whoever compares two plans
//! has to look only at the others.

use crate::groups::layout::Layout;
use crate::groups::slot_sets::SlotSets;
use crate::groups::slots::Slots;
use crate::ids::{NodeRank, ProcessRank};
use crate::inventory::Inventory;
use crate::rank_set::RankSet;
use crate::table::{Row, Table};

/// A component in one of two plans.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Its rows.
    pub table: &'a Table,
    /// The nodes of its plan.
    pub inventory: &'a Inventory,
    /// Its slots.
    pub slots: &'a Slots,
    /// Its parallel groups.
    pub layout: &'a Layout,
    /// Its slots by node.
    pub by_node: &'a SlotSets,
}

/// The slots that both plans have with the same number, process, coordinates, node, devices and node group.
///
/// `nodes` has the node of the plan after for each node of the plan before. Only slots of nodes are returned whose slots are all
/// the same: so the others, which are left, share no device with them. A process whose node has other accelerators changes.
pub fn unchanged(before: Placed<'_>, after: Placed<'_>, nodes: &[Option<u32>]) -> RankSet {
    if !before.layout.kinds().eq(after.layout.kinds()) {
        return RankSet::default();
    }
    let same = same_slots(before, after, nodes);
    let is_same = |slot: u32| same.get(slot as usize) == Some(&true);
    let mut kept = vec![false; same.len()];
    for (old, new) in (0..).zip(nodes).filter_map(|(old, new)| Some((old, (*new)?))) {
        let members = after.by_node.get(new);
        if before.by_node.get(old) == members && members.iter().all(|&slot| is_same(slot)) {
            members.iter().for_each(|&slot| kept[slot as usize] = true);
        }
    }
    (0..).zip(kept).filter_map(|(slot, is_kept)| is_kept.then_some(slot)).collect()
}

/// Whether each slot is the same in both plans.
fn same_slots(before: Placed<'_>, after: Placed<'_>, nodes: &[Option<u32>]) -> Vec<bool> {
    let mut same = vec![false; before.slots.len().min(after.slots.len()) as usize];
    // Coordinates can differ only in groups of another step or size.
    let groups: Vec<_> =
        before.layout.kinds().map(|kind| (before.layout.groups(kind), after.layout.groups(kind))).collect();
    let differing: Vec<_> =
        groups.into_iter().filter(|(old, new)| (old.step(), old.size()) != (new.step(), new.size())).collect();
    let (mut old_start, mut new_start) = (0, 0);
    for rank in 0..before.table.len().min(after.table.len()) {
        let old = old_start..before.slots.start_of(rank + 1);
        let new = new_start..after.slots.start_of(rank + 1);
        (old_start, new_start) = (old.end, new.end);
        if old != new || !same_process(before, after, nodes, ProcessRank(rank)) {
            continue;
        }
        for slot in old {
            let ((old_node, old_index), (node, index)) = (before.slots.place(slot), after.slots.place(slot));
            let is_there = nodes.get(old_node.0 as usize) == Some(&Some(node.0)) && old_index == index;
            same[slot as usize] =
                is_there && differing.iter().all(|(old, new)| old.position(slot) == new.position(slot));
        }
    }
    same
}

/// Whether a process has the same node group, devices and node in both plans, and the node the same accelerators.
fn same_process(before: Placed<'_>, after: Placed<'_>, nodes: &[Option<u32>], rank: ProcessRank) -> bool {
    let (Some(old), Some(new)) = (before.table.row(rank), after.table.row(rank)) else { return false };
    let on = |node: NodeRank| nodes.get(node.0 as usize).copied().flatten();
    let same_group = group_of(before.table, &old) == group_of(after.table, &new);
    let same_home = on(old.cluster_node_rank) == Some(new.cluster_node_rank.0);
    let mut old_places = old.places().map(|(node, index)| (on(node), index));
    same_group
        && same_home
        && new.places().all(|(node, index)| old_places.next() == Some((Some(node.0), index)))
        && old_places.next().is_none()
        && before.inventory.spec(old.cluster_node_rank) == after.inventory.spec(new.cluster_node_rank)
}

fn group_of<'a>(table: &'a Table, row: &Row<'_>) -> Option<&'a crate::selection::Group> {
    table.groups().get(row.group as usize)
}
