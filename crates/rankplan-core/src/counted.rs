//! What goes wrong where a trainer counts processes instead of asking where they are.
//!
//! It expects that as many processes are on each node as its accelerators have room for, in order. The first of them gives
//! all the others its host, and each node starts with the same port.

use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::taken::Taken;

/// A process that gets what belongs to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscounted {
    /// The process.
    pub process: u32,
    /// Its node.
    pub node: NodeRank,
    /// The process whose host it gets, or whose ports if both are on one node.
    pub other: u32,
    /// The node of that process.
    pub other_node: NodeRank,
}

const NO_PROCESS: u32 = u32::MAX;

impl Taken {
    /// The first process that gets the host of another node, or the ports of another process on its node.
    ///
    /// Processes have `each` accelerators; the trainer counts `together` of them on a node.
    pub fn miscounted(&self, inventory: &Inventory, each: u32, together: u32) -> Option<Miscounted> {
        let together = together.max(1);
        // By node, the first process of those that the trainer counts there.
        let mut leaders = vec![NO_PROCESS; inventory.num_nodes() as usize];
        let mut leader = (0, NodeRank(0));
        for (process, node) in (0..).zip(self.nodes(inventory, each)) {
            if process % together == 0 {
                leader = (process, node);
            }
            let (other, other_node) = leader;
            if other_node != node {
                return Some(Miscounted { process, node, other, other_node });
            }
            match &mut leaders[node.0 as usize] {
                unknown if *unknown == NO_PROCESS => *unknown = other,
                first if *first != other => return Some(Miscounted { process, node, other: *first, other_node: node }),
                _ => {}
            }
        }
        None
    }

    /// The first engine with two of its `groups` groups of `each` accelerators on one node, and the node of its first group.
    /// Its processes are numbered in their group, so those of both groups have the same numbers there.
    pub fn sharing_numbers(&self, inventory: &Inventory, each: u32, groups: u32) -> Option<(u32, NodeRank)> {
        let nodes: Vec<NodeRank> = self.nodes(inventory, each).collect();
        let engines = nodes.chunks_exact(groups.max(1) as usize);
        let shares = |own: &[NodeRank]| {
            let mut sorted = own.to_vec();
            sorted.sort_unstable();
            sorted.windows(2).any(|pair| pair[0] == pair[1])
        };
        let (engine, own) = (0..).zip(engines).find(|(_, own)| shares(own))?;
        Some((engine, own[0]))
    }
}
