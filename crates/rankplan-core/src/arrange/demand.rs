//! The node ranks that an arrangement keeps together, because a parallel group is on them, and the processes on each.

use std::collections::HashMap;

use crate::groups::layout::Layout;
use crate::groups::parallel::Kind;
use crate::groups::slots::Slots;
use crate::table::Table;

/// Every kind of group, by how much a crossing costs: tensor, context and expert-tensor groups; expert groups; data groups with
/// their parts and those of experts; pipeline groups.
pub const CLASSES: [&[Kind]; 4] =
    [&[Kind::Tp, Kind::Cp, Kind::Etp], &[Kind::Ep], &[Kind::Dp, Kind::Fsdp, Kind::Replica, Kind::Edp], &[Kind::Pp]];

/// Groups of one class on the same two or more node ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index in [`CLASSES`].
    pub class: usize,
    /// How many groups.
    pub groups: u32,
    /// The node ranks, ascending.
    pub ranks: Box<[u32]>,
}

/// Node ranks that must be in one domain of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bond {
    /// The level.
    pub level: usize,
    /// The node ranks, ascending.
    pub ranks: Box<[u32]>,
    /// Its origin: an index that the caller chooses.
    pub source: u32,
}

/// The edges and processes of all components of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// By class, then by their first group.
    pub edges: Vec<Edge>,
    /// By node rank, the number of processes that run there.
    pub processes: Vec<u32>,
    /// By node rank, the number of processes that run elsewhere and use accelerators there.
    pub visitors: Vec<u32>,
}

impl Demand {
    /// The demand of these components on `ranks` node ranks: their rows and, if they state sizes, their groups.
    pub fn of(ranks: u32, parts: &[(&Table, Option<(&Slots, &Layout)>)]) -> Self {
        let (mut processes, mut visitors) = (vec![0; ranks as usize], vec![0; ranks as usize]);
        for (table, _) in parts {
            table.cluster_node_rank().iter().for_each(|&node| processes[node as usize] += 1);
            let mut last = None;
            for &(device, node) in table.elsewhere() {
                let row = table.device_starts().partition_point(|&start| start <= device);
                if last.replace((row, node)) != Some((row, node)) {
                    visitors[node as usize] += 1;
                }
            }
        }
        let mut edges = Vec::new();
        let laid_out: Vec<_> = parts.iter().filter_map(|(_, layout)| *layout).collect();
        let places: Vec<_> = laid_out.iter().map(|(slots, _)| nodes_of(slots)).collect();
        for (class, kinds) in CLASSES.iter().enumerate() {
            let mut collected = Collected::default();
            for (&(_, layout), nodes) in laid_out.iter().zip(&places) {
                for kind in layout.kinds().filter(|kind| kinds.contains(kind)) {
                    each_group(layout, kind, nodes, |ranks| collected.add(ranks));
                }
            }
            let found = collected.sets.into_iter();
            edges.extend(found.map(|(ranks, groups)| Edge { class, groups, ranks }));
        }
        Demand { edges, processes, visitors }
    }
}

/// The sets of two or more node ranks that groups of one kind are on, each once.
pub fn node_sets(slots: &Slots, layout: &Layout, kind: Kind) -> Vec<Box<[u32]>> {
    let mut collected = Collected::default();
    each_group(layout, kind, &nodes_of(slots), |ranks| collected.add(ranks));
    collected.sets.into_iter().map(|(ranks, _)| ranks).collect()
}

/// The node rank of every slot.
fn nodes_of(slots: &Slots) -> Vec<u32> {
    slots.places().map(|(node, _)| node).collect()
}

/// Call with the node ranks of each group of a kind that has several.
fn each_group(layout: &Layout, kind: Kind, nodes: &[u32], mut call: impl FnMut(&[u32])) {
    let groups = layout.groups(kind);
    if groups.size() < 2 {
        return;
    }
    let mut ranks = Vec::with_capacity(groups.size() as usize);
    for group in (0..groups.len()).filter_map(|index| groups.get(index)) {
        ranks.clear();
        for slot in group.slots() {
            let node = nodes[slot as usize];
            if ranks.last() != Some(&node) {
                ranks.push(node);
            }
        }
        if !ranks.is_sorted_by(|a, b| a < b) {
            ranks.sort_unstable();
            ranks.dedup();
        }
        if ranks.len() > 1 {
            call(&ranks);
        }
    }
}

/// Sets of node ranks in the order found, and how often each was found.
#[derive(Default)]
struct Collected {
    known: HashMap<Box<[u32]>, usize>,
    sets: Vec<(Box<[u32]>, u32)>,
    last: usize,
}

impl Collected {
    fn add(&mut self, ranks: &[u32]) {
        // Groups that differ in their accelerators only follow each other.
        if let Some((last, count)) = self.sets.get_mut(self.last)
            && **last == *ranks
        {
            *count += 1;
            return;
        }
        match self.known.get(ranks) {
            Some(&index) => {
                self.sets[index].1 += 1;
                self.last = index;
            }
            None => {
                self.last = self.sets.len();
                self.known.insert(ranks.into(), self.last);
                self.sets.push((ranks.into(), 1));
            }
        }
    }
}
