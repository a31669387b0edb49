//! A small cluster to place on.

use rankplan_core::Counted;
use rankplan_core::{Inventory, NodeSpec, Pool, RankSet, Selection};

pub fn inventory(accelerators: &[u32]) -> Inventory {
    let spec = |count: u32| NodeSpec {
        accelerator_type: "NV_GPU".into(),
        accelerator_ids: (0..count).map(|index| index.to_string()).collect(),
    };
    let entries =
        accelerators.iter().enumerate().map(|(node, &count)| ([node as u32].into_iter().collect(), spec(count)));
    Inventory::new(entries.collect()).expect("nodes 0..n")
}

pub fn pool(accelerators: &[u32]) -> Pool {
    pool_of(accelerators, Counted::AcceleratorsOrNodes)
}

pub fn pool_of(accelerators: &[u32], counted: Counted) -> Pool {
    let inventory = inventory(accelerators);
    let nodes = RankSet::first_ranks(inventory.num_nodes());
    let selection = Selection { label: "cluster".into(), nodes, counted };
    Pool::new(&inventory, &[selection]).expect("all nodes")
}
