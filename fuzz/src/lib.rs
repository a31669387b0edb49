//! Shared by the fuzz targets: a cluster to place on, and its resources.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use rankplan_core::{Counted, Inventory, NodeRank, NodeSpec, Pool, RankSet, Selection};

/// Up to eight nodes with up to fifteen accelerators each, and possibly robots in their own group.
#[derive(Arbitrary, Debug)]
pub struct Machines {
    nodes: Vec<Node>,
    by_node: bool,
    robots: bool,
}

#[derive(Arbitrary, Debug)]
struct Node {
    accelerators: u8,
    robots: u8,
    amd: bool,
}

/// The meaning of a resource rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The node rank.
    pub node: u32,
    /// The index on the node; `None` for a whole node.
    pub local: Option<u16>,
    /// The name of the hardware.
    pub kind: &'static str,
}

impl Machines {
    fn nodes(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..8).zip(&self.nodes)
    }

    /// The resources as a pool of the core.
    ///
    /// # Panics
    /// If the core rejects these machines.
    pub fn pool(&self) -> Pool {
        let spec = |node: &Node| NodeSpec {
            accelerator_type: if node.amd { "AMD_GPU" } else { "NV_GPU" }.into(),
            accelerator_ids: (0..node.accelerators % 16).map(|id| id.to_string()).collect(),
        };
        let entries = self.nodes().map(|(rank, node)| (RankSet::from_iter([rank]), spec(node))).collect();
        let inventory = Inventory::new(entries).expect("nodes 0..n, each once");
        let nodes = RankSet::first_ranks(inventory.num_nodes());
        let counted = if self.by_node { Counted::Nodes } else { Counted::AcceleratorsOrNodes };
        let mut selections = vec![Selection { label: "cluster".into(), nodes: nodes.clone(), counted }];
        if self.robots && !self.counts_nodes() {
            let counts = self.nodes().map(|(rank, node)| (NodeRank(rank), u32::from(node.robots % 4))).collect();
            let counted = Counted::Hardware("Franka".into(), counts);
            selections.push(Selection { label: "arms".into(), nodes, counted });
        }
        Pool::new(&inventory, &selections).expect("distinct resources of the inventory")
    }

    /// The resources in rank order, counted one by one.
    pub fn places(&self) -> Vec<Place> {
        if self.counts_nodes() {
            return self.nodes().map(|(node, _)| Place { node, local: None, kind: "node" }).collect();
        }
        let mut places = Vec::new();
        for (rank, node) in self.nodes() {
            let kind = if node.amd { "AMD_GPU" } else { "NV_GPU" };
            places.extend((0..node.accelerators % 16).map(|id| Place { node: rank, local: Some(id.into()), kind }));
        }
        for (rank, node) in self.nodes().filter(|_| self.robots) {
            places.extend((0..node.robots % 4).map(|id| Place { node: rank, local: Some(id.into()), kind: "Franka" }));
        }
        places
    }

    fn counts_nodes(&self) -> bool {
        self.by_node || self.nodes().all(|(_, node)| node.accelerators % 16 == 0)
    }
}
