//! Index newtypes: a [`NodeRank`] is never a [`ProcessRank`].

macro_rules! rank {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

rank!(
    /// Index of a machine in the cluster, `0..num_nodes`.
    NodeRank
);
rank!(
    /// Index of a resource inside the selected node groups, counted node by node from 0.
    ResourceRank
);
rank!(
    /// Index of a process inside its component, `0..world_size`.
    ProcessRank
);

/// The largest rank that can be written or held.
pub const MAX_RANK: u32 = u32::MAX - 1;

/// The most processes that one component can have.
pub const MAX_PROCESSES: u32 = 1 << 24;

/// The most nodes that a cluster can have.
pub const MAX_NODES: u32 = 1 << 24;

/// The most resources of one kind that one node can have: their local indices are kept in 16 bits.
pub const MAX_LOCAL: u32 = 1 << 16;

/// The reserved label of the node group of all nodes, the default.
pub const CLUSTER: &str = "cluster";

/// The reserved label of the node group of all nodes that counts nodes.
pub const NODE: &str = "node";
