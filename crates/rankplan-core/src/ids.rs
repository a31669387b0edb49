//! Index newtypes (a [`NodeRank`] is never a [`ProcessRank`]), limits and reserved names.

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
    /// Index of a resource within the selected node groups, counted from 0, node by node.
    ResourceRank
);
rank!(
    /// Index of a process within its component, `0..world_size`.
    ProcessRank
);

/// The largest rank.
pub const MAX_RANK: u32 = u32::MAX - 1;

/// The largest number of processes of one component.
pub const MAX_PROCESSES: u32 = 1 << 24;

/// The largest number of nodes of a cluster.
pub const MAX_NODES: u32 = 1 << 24;

/// The largest number of resources of one kind on one node: a local index has 16 bits.
pub const MAX_LOCAL: u32 = 1 << 16;

/// Reserved label of the node group of all nodes, the default.
pub const CLUSTER: &str = "cluster";

/// Reserved label of the node group of all nodes that counts nodes instead of their hardware.
pub const NODE: &str = "node";
