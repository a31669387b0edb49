//! `Placement`: one row.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyType;
use rankplan_core::Group;
use rankplan_core::table::places;
use rankplan_core::{NodeRank, NodeSpec, ResourceKind};

use crate::pickling::Reduced;
use crate::visibility::Visibility;

/// Where one process runs.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(Clone)]
pub struct Placement {
    /// Process rank.
    #[pyo3(get)]
    pub(crate) rank: u32,
    /// Number of processes of the component.
    #[pyo3(get)]
    pub(crate) world_size: u32,
    /// Node rank in the cluster.
    #[pyo3(get)]
    pub(crate) cluster_node_rank: u32,
    /// Index of the node among the component's nodes, in order of first use.
    #[pyo3(get)]
    pub(crate) placement_node_rank: u32,
    /// Index among the component's processes on the node.
    #[pyo3(get)]
    pub(crate) local_rank: u32,
    /// Number of the component's processes on the node.
    #[pyo3(get)]
    pub(crate) local_world_size: u32,
    /// Which accelerators the process sees: `own`, `node` or `own-first`.
    #[pyo3(get)]
    pub(crate) visibility: Visibility,
    /// Local indices of all resources.
    pub(crate) local: Box<[u16]>,
    /// Resources on other nodes: index in `local`, and the node.
    pub(crate) elsewhere: Box<[(u32, u32)]>,
    pub(crate) groups: Arc<[Group]>,
    pub(crate) group: u32,
    pub(crate) node: Arc<NodeSpec>,
}

impl Placement {
    fn group(&self) -> &Group {
        &self.groups[self.group as usize]
    }

    /// Whether its resources are accelerators.
    fn accelerated(&self) -> bool {
        self.group().kind == ResourceKind::Accelerator
    }

    /// All resources: node and local index.
    fn places(&self) -> impl Iterator<Item = (u32, u16)> {
        let home = NodeRank(self.cluster_node_rank);
        places(home, 0, &self.local, &self.elsewhere).map(|(node, local)| (node.0, local))
    }

    /// Local indices of the resources on its own node.
    fn at_home(&self) -> impl Iterator<Item = u16> {
        self.places().filter(|&(node, _)| node == self.cluster_node_rank).map(|(_, index)| index)
    }

    /// Everything that distinguishes two rows.
    fn key(&self) -> Key<'_> {
        let ranks = [
            self.rank,
            self.world_size,
            self.cluster_node_rank,
            self.placement_node_rank,
            self.local_rank,
            self.local_world_size,
        ];
        (ranks, self.visibility, &self.local, &self.elsewhere, self.group(), &self.node)
    }
}

impl PartialEq for Placement {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Hash for Placement {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

type Key<'a> = ([u32; 6], Visibility, &'a [u16], &'a [(u32, u32)], &'a Group, &'a NodeSpec);
type PlacementState = ([u32; 6], Visibility, Vec<u16>, Vec<(u32, u32)>, (String, String), (String, Vec<String>));

#[pymethods]
impl Placement {
    /// Local indices of its resources on the node; empty if placed by node.
    #[getter]
    fn local_hardware_ranks(&self) -> Vec<u16> {
        self.at_home().collect()
    }

    /// Accelerator type of the node; `NO_ACCEL` without accelerators.
    #[getter]
    fn accelerator_type(&self) -> &str {
        &self.node.accelerator_type
    }

    /// Ids of the accelerators that the process sees.
    #[getter]
    fn visible_accelerators(&self) -> Vec<&str> {
        let ids = &self.node.accelerator_ids;
        if !self.accelerated() {
            return ids.iter().map(String::as_str).collect();
        }
        let seen = self.visibility.seen(self.at_home().collect(), ids.len());
        seen.into_iter().filter_map(|index| ids.get(index)).map(String::as_str).collect()
    }

    /// Whether the process sees only its own accelerators.
    #[getter]
    fn isolate_accelerator(&self) -> bool {
        self.visibility == Visibility::Own
    }

    /// Local index of the process's first accelerator; 0 if only its node has accelerators, -1 if neither has any.
    #[getter]
    fn local_accelerator_rank(&self) -> i32 {
        match self.local.first() {
            Some(&index) if self.accelerated() => i32::from(index),
            _ if self.node.accelerator_ids.is_empty() => -1,
            _ => 0,
        }
    }

    /// Number of its own accelerators.
    #[getter]
    fn num_accelerators(&self) -> usize {
        if self.accelerated() { self.local.len() } else { 0 }
    }

    /// All its resources as (node rank, local index).
    #[getter]
    fn devices(&self) -> Vec<(u32, u16)> {
        self.places().collect()
    }

    /// Type of its resources: `accelerator`, `node` or a hardware type.
    #[getter]
    fn resource_type(&self) -> &str {
        self.group().kind.name()
    }

    /// Label of the node group that selected the node.
    #[getter]
    fn node_group_label(&self) -> &str {
        &self.group().label
    }

    fn __repr__(&self) -> String {
        format!(
            "Placement(rank={}/{}, node={}, local_rank={}/{}, {}={:?}{}, visible={:?}, node_group='{}')",
            self.rank,
            self.world_size,
            self.cluster_node_rank,
            self.local_rank,
            self.local_world_size,
            self.group().kind.name(),
            self.local_hardware_ranks(),
            if self.elsewhere.is_empty() { String::new() } else { format!(" of {:?}", self.devices()) },
            self.visible_accelerators(),
            self.group().label,
        )
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (PlacementState,)> {
        let row = slf.get();
        let (ranks, visibility, local, elsewhere, group, node) = row.key();
        let group = (group.label.clone(), group.kind.name().to_owned());
        let node = (node.accelerator_type.clone(), node.accelerator_ids.clone());
        Ok((
            slf.get_type().getattr("_restore")?,
            ((ranks, visibility, local.to_vec(), elsewhere.to_vec(), group, node),),
        ))
    }

    #[classmethod]
    fn _restore(_class: &Bound<'_, PyType>, state: PlacementState) -> Self {
        let (ranks, visibility, local, elsewhere, (label, kind), (accelerator_type, accelerator_ids)) = state;
        let [rank, world_size, cluster_node_rank, placement_node_rank, local_rank, local_world_size] = ranks;
        Placement {
            rank,
            world_size,
            cluster_node_rank,
            placement_node_rank,
            local_rank,
            local_world_size,
            visibility,
            local: local.into(),
            elsewhere: elsewhere.into(),
            groups: Arc::new([Group { label, kind: kind.into() }]),
            group: 0,
            node: Arc::new(NodeSpec { accelerator_type, accelerator_ids }),
        }
    }
}
