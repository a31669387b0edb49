//! `Inventory`.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use rankplan_core::{NodeNames, NodeOrder, NodeRank, NodeSpec};

use crate::errors::OrRaise;
use crate::rank_set::RankSet;

/// Equal nodes and their accelerators.
#[derive(FromPyObject)]
struct Node {
    ranks: RankSet,
    accelerator_type: String,
    accelerator_ids: Vec<String>,
    ip: Option<Text>,
    hostname: Option<Text>,
    labels: BTreeMap<Text, Text>,
}

/// A text, with replacement characters for lone surrogates.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Text(String);

impl<'py> FromPyObject<'_, 'py> for Text {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Text(given.cast::<PyString>()?.to_string_lossy().into_owned()))
    }
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

/// The order of this name; raises `ValueError` for an unknown one.
pub fn node_order(name: &str) -> PyResult<NodeOrder> {
    NodeOrder::named(name).ok_or_else(|| PyValueError::new_err(format!("unknown order of nodes {name:?}")))
}

#[pymethods]
impl Inventory {
    /// `nodes` are objects with the attributes `ranks`, `accelerator_type`, `accelerator_ids`, `ip`, `hostname`, `labels`.
    #[new]
    fn new(py: Python<'_>, nodes: Vec<Node>) -> PyResult<Self> {
        let text = |text: Option<Text>| text.map(|text| text.0);
        let parts = nodes.into_iter().map(|node| {
            let spec = NodeSpec { accelerator_type: node.accelerator_type, accelerator_ids: node.accelerator_ids };
            let labels = node.labels.into_iter().map(|(key, value)| (key.0, value.0)).collect();
            ((node.ranks.0, spec), NodeNames { ip: text(node.ip), hostname: text(node.hostname), labels })
        });
        let (entries, names) = parts.unzip();
        let inventory = rankplan_core::Inventory::new(entries).or_raise(py, None)?;
        Ok(Inventory(Arc::new(inventory.named(names))))
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

    /// Return an accelerator of a node, counted node by node. Raises `IndexError`.
    fn resource(&self, node: u32, index: u32) -> PyResult<u32> {
        let found = self.0.resource(NodeRank(node), index);
        found.ok_or_else(|| PyIndexError::new_err(format!("node {node} has no accelerator {index}")))
    }

    /// Return the node of an accelerator, and its local index there. Raises `IndexError`.
    fn place(&self, resource: u32) -> PyResult<(u32, u32)> {
        let found = self.0.place(resource).map(|(node, index)| (node.0, index));
        found.ok_or_else(|| PyIndexError::new_err(format!("unknown accelerator {resource}")))
    }

    /// Return the number of accelerators of a node; 0 for an unknown one.
    fn num_accelerators(&self, node: u32) -> u32 {
        self.0.num_accelerators(NodeRank(node))
    }

    /// Return the nodes by their number of accelerators, ascending.
    fn nodes_by_size(&self) -> BTreeMap<u32, RankSet> {
        self.0.nodes_by_size().into_iter().map(|(size, nodes)| (size, RankSet(nodes))).collect()
    }

    /// Return all nodes as a trainer sorts them: `None` if what it sorts by is unknown for one of them. `ids` are Ray's ids
    /// of the nodes, by node rank. Raises `ValueError` for an unknown order.
    #[pyo3(signature = (how, ids = Vec::new()))]
    fn order(&self, py: Python<'_>, how: &str, ids: Vec<String>) -> PyResult<Option<Vec<u32>>> {
        let how = node_order(how)?;
        Ok(py.detach(|| self.0.order(how, &ids)))
    }

    /// Return where each of these nodes comes as a trainer sorts them, by node rank; see `order`.
    #[pyo3(signature = (how, nodes, ids = Vec::new()))]
    fn places(
        &self,
        py: Python<'_>,
        how: &str,
        nodes: &RankSet,
        ids: Vec<String>,
    ) -> PyResult<Option<BTreeMap<u32, u32>>> {
        let how = node_order(how)?;
        let places = py.detach(|| self.0.places(how, &nodes.0, &ids));
        Ok(places.map(|places| places.iter().map(|(node, place)| (node.0, place)).collect()))
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
