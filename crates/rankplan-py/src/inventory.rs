//! `Inventory`.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use rankplan_core::NodeSpec;

use crate::errors::OrRaise;
use crate::rank_set::RankSet;

/// Equal nodes and their accelerators.
#[derive(FromPyObject)]
struct Node {
    ranks: RankSet,
    accelerator_type: String,
    accelerator_ids: Vec<String>,
}

/// The accelerators of each node.
#[pyclass(frozen, eq, module = "rankplan._core")]
#[derive(PartialEq)]
pub struct Inventory(pub Arc<rankplan_core::Inventory>);

impl Inventory {
    /// The inventory of pickled nodes.
    pub fn from_state(py: Python<'_>, nodes: Vec<NodeState>) -> PyResult<Self> {
        let nodes = nodes.into_iter().map(|(ranks, accelerator_type, accelerator_ids)| {
            (ranks.0, NodeSpec { accelerator_type, accelerator_ids })
        });
        let inventory = rankplan_core::Inventory::new(nodes.collect()).or_raise(py, None)?;
        Ok(Inventory(Arc::new(inventory)))
    }
}

/// Pickled nodes: their ranks, accelerator type, and the ids of each node's accelerators.
pub type NodeState = (RankSet, String, Vec<String>);

/// The nodes of an inventory, to pickle.
pub fn node_states(inventory: &rankplan_core::Inventory) -> Vec<NodeState> {
    let nodes = inventory.entries();
    nodes.map(|(ranks, spec)| (RankSet(ranks), spec.accelerator_type.clone(), spec.accelerator_ids.clone())).collect()
}

#[pymethods]
impl Inventory {
    /// `nodes` are objects with the attributes `ranks`, `accelerator_type` and `accelerator_ids`.
    #[new]
    fn new(py: Python<'_>, nodes: Vec<Node>) -> PyResult<Self> {
        let state = |node: Node| (node.ranks, node.accelerator_type, node.accelerator_ids);
        Self::from_state(py, nodes.into_iter().map(state).collect())
    }

    /// Number of nodes.
    #[getter]
    fn num_nodes(&self) -> u32 {
        self.0.num_nodes()
    }

    /// Return the nodes of these ranks, numbered from 0 in this order. Raises `IndexError` for an unknown rank, and for more
    /// nodes than there are.
    fn reordered(&self, py: Python<'_>, order: Vec<u32>) -> PyResult<Self> {
        let found = py.detach(|| self.0.reordered(&order));
        found.map(|found| Inventory(Arc::new(found))).ok_or_else(|| PyIndexError::new_err("unknown node rank"))
    }

    /// Return all accelerators, counted node by node.
    fn accelerators(&self, py: Python<'_>) -> RankSet {
        RankSet(py.detach(|| self.0.accelerators()))
    }

    /// Return these accelerators, counted node by node, as local indices by node rank.
    fn by_node(&self, py: Python<'_>, accelerators: &RankSet) -> BTreeMap<u32, RankSet> {
        let found = py.detach(|| self.0.by_node(&accelerators.0));
        found.into_iter().map(|(node, local)| (node.0, RankSet(local))).collect()
    }
}
