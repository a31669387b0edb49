//! `Inventory`, and reading one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyRange, PyString, PyTuple};
use rankplan_core::amounts::Amount;
use rankplan_core::node::NodeSpec as Accelerators;
use rankplan_core::read::place::{Place, in_order};
use rankplan_core::read::reader::{Reader, hardware_type_fault};
use rankplan_core::read::value::Value;
use rankplan_core::{NodeOrder, NodeRank, node_reader};

use crate::errors::{OrRaise, diagnostic, located};
use crate::node::{NodeSpec, known_names};
use crate::rank_set::RankSet;
use crate::value::{to_python, value_of, value_of_keys};

/// The nodes of a cluster by rank, with their records.
#[pyclass(frozen, eq, module = "rankplan._core")]
#[derive(PartialEq)]
pub struct Inventory(pub Arc<rankplan_core::Inventory>);

impl Inventory {
    /// The inventory of pickled nodes.
    pub fn from_state(py: Python<'_>, nodes: Vec<NodeState>) -> PyResult<Self> {
        let nodes = nodes.into_iter().map(|(ranks, accelerator_type, accelerator_ids)| {
            (ranks.0, Accelerators { accelerator_type, accelerator_ids })
        });
        let inventory = rankplan_core::Inventory::new(nodes.collect()).or_raise(py, None)?;
        Ok(Inventory(Arc::new(inventory)))
    }

    fn of(inventory: rankplan_core::Inventory) -> Self {
        Inventory(Arc::new(inventory))
    }
}

/// Pickled nodes of rows, which need only their accelerators: their ranks, accelerator type, and the ids of each node's
/// accelerators.
pub type NodeState = (RankSet, String, Vec<String>);

/// The nodes of an inventory, to pickle with rows.
pub fn node_states(inventory: &rankplan_core::Inventory) -> Vec<NodeState> {
    let state = |(ranks, node): (_, &Arc<rankplan_core::Node>)| {
        let spec = &node.accelerators;
        (RankSet(ranks), spec.accelerator_type.clone(), spec.accelerator_ids.clone())
    };
    inventory.entries().map(state).collect()
}

/// A fault, and its path.
type Located<'py> = (Bound<'py, PyTuple>, Bound<'py, PyAny>);

/// An inventory, the levels that it states, and faults; without faults, there is an inventory.
type Stated<'py> = (Option<Inventory>, Option<Vec<String>>, Vec<Located<'py>>);

/// Read the keys `nodes` and `levels` of a mapping. Return the inventory and the levels, or every fault with its path, in
/// the order of the mapping.
#[pyfunction]
pub fn read_inventory<'py>(py: Python<'py>, content: &Bound<'py, PyAny>) -> PyResult<Stated<'py>> {
    let content = value_of_keys(content, &["nodes", "levels"])?;
    let names = known_names(py)?;
    let nodes = content.get("nodes").unwrap_or(&Value::Null);
    let levels = content.get("levels").filter(|levels| **levels != Value::Null);
    match py.detach(|| node_reader::read_inventory(nodes, levels, &names)) {
        Ok((inventory, levels)) => Ok((Some(Inventory::of(inventory)), levels, Vec::new())),
        Err(faults) => Ok((None, None, located(py, in_order(faults, &content))?)),
    }
}

/// Return the set of ranks that a value states. Raises `PlacementError` for any other value.
#[pyfunction]
pub fn read_ranks(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<RankSet> {
    let mut reader = Reader::new(None);
    match reader.ranks(&value_of(value)?, &Place::WHOLE) {
        Some(ranks) => Ok(RankSet(ranks)),
        None => Err(reader.faults).or_raise(py, None),
    }
}

/// Return every fault of the levels of a network, keys of labels, with its index.
#[pyfunction]
pub fn level_faults<'py>(py: Python<'py>, levels: &Bound<'py, PyAny>) -> PyResult<Vec<Located<'py>>> {
    let mut reader = Reader::new(None);
    node_reader::read_levels(&mut reader, &value_of(levels)?, &Place::WHOLE);
    located(py, reader.faults)
}

/// The domains of a level: by node, as bytes of 32-bit numbers; their names; and their parents.
type Level<'py> = (Bound<'py, PyBytes>, Vec<Bound<'py, PyTuple>>, Bound<'py, PyTuple>);

/// Return the domains of nodes with these labels, at each of these levels, outermost first: the domain of each node as bytes
/// of 32-bit numbers; the labels of each domain and of its parents; and its domain at the level outside.
#[pyfunction]
pub fn domains<'py>(
    py: Python<'py>,
    labels: Vec<HashMap<String, String>>,
    levels: Vec<String>,
) -> PyResult<Vec<Level<'py>>> {
    let label = |node: u32, key: &str| labels[node as usize].get(key).map(String::as_str);
    levels_of(py, &rankplan_core::domains::domains(labels.len() as u32, &levels, label))
}

/// Return the indices of nodes with these labels domain after domain, depth first. Within a domain, nodes with an explicit
/// rank come first, and equal ones keep their order.
#[pyfunction]
pub fn natural_order(labels: Vec<HashMap<String, String>>, levels: Vec<String>) -> Vec<u32> {
    let label = |node: u32, key: &str| labels[node as usize].get(key).map(String::as_str);
    rankplan_core::domains::natural_order(labels.len() as u32, &levels, label)
}

fn levels_of<'py>(py: Python<'py>, levels: &[rankplan_core::domains::Level<'_>]) -> PyResult<Vec<Level<'py>>> {
    let level = |level: &rankplan_core::domains::Level<'_>| {
        let ids: Vec<u8> = level.ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
        let names = level.names.iter().map(|name| PyTuple::new(py, name)).collect::<PyResult<_>>()?;
        Ok((PyBytes::new(py, &ids), names, PyTuple::new(py, &level.parents)?))
    };
    levels.iter().map(level).collect()
}

/// Raise `PlacementError` for the name of hardware that a node group, or a record, cannot have.
#[pyfunction]
pub fn check_hardware_type(py: Python<'_>, name: &str) -> PyResult<()> {
    hardware_type_fault(name, &known_names(py)?).map_or(Ok(()), Err).or_raise(py, None)
}

/// What an address is sorted by: IPv4 as a number, then IPv6 as a number, then names, in which numbers count as numbers. Equal
/// only for the same address. Ignores brackets around an IPv6 address, and reads an IPv4 address mapped into IPv6 as IPv4.
#[pyclass(frozen, eq, ord, hash, module = "rankplan._core")]
pub struct AddressKey(String);

impl AddressKey {
    fn key(&self) -> rankplan_core::order::AddressKey<'_> {
        rankplan_core::order::address_key(&self.0)
    }
}

impl PartialEq for AddressKey {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl PartialOrd for AddressKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.key().partial_cmp(&other.key())
    }
}

impl Hash for AddressKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[pymethods]
impl AddressKey {
    #[new]
    fn new(address: &Bound<'_, PyString>) -> Self {
        AddressKey(address.to_string_lossy().into_owned())
    }
}

/// The order of this name; raises `ValueError` for an unknown one.
pub fn node_order(name: &str) -> PyResult<NodeOrder> {
    NodeOrder::named(name).ok_or_else(|| PyValueError::new_err(format!("unknown order of nodes {name:?}")))
}

#[pymethods]
impl Inventory {
    #[new]
    fn new(py: Python<'_>, nodes: Vec<Bound<'_, NodeSpec>>) -> PyResult<Self> {
        let entries = nodes.iter().map(|node| node.get().entry()).collect();
        Ok(Self::of(rankplan_core::Inventory::new(entries).or_raise(py, None)?))
    }

    /// Number of nodes.
    #[getter]
    fn num_nodes(&self) -> u32 {
        self.0.num_nodes()
    }

    /// Return the record of the node of this rank. Raises `IndexError` for an unknown rank.
    fn node(&self, rank: u32) -> PyResult<NodeSpec> {
        let node = self.0.record(NodeRank(rank)).ok_or_else(|| PyIndexError::new_err("unknown node rank"))?;
        Ok(NodeSpec::new(rankplan_core::RankSet::from_iter([rank]), node.clone()))
    }

    /// Return each record, with the ranks of its nodes.
    fn entries(&self) -> Vec<NodeSpec> {
        self.0.entries().map(|(ranks, node)| NodeSpec::new(ranks, node.clone())).collect()
    }

    /// Return each range of nodes with one record, ascending, with that record.
    fn stretches<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyRange>, NodeSpec)>> {
        let stretch = |(nodes, node): (std::ops::Range<u32>, &Arc<rankplan_core::Node>)| {
            let range = PyRange::new(py, nodes.start as isize, nodes.end as isize)?;
            let ranks = rankplan_core::RankSet::from_ranges(rankplan_core::RankRange::new(nodes.start, nodes.end - 1));
            Ok((range, NodeSpec::new(ranks, node.clone())))
        };
        self.0.stretches().map(stretch).collect()
    }

    /// Return the number of nodes that have each key of a label, by key, sorted.
    fn label_keys(&self) -> BTreeMap<&str, u32> {
        self.0.label_keys()
    }

    /// Return the index and the fault of each level that is the key of no label.
    fn unlabelled<'py>(&self, py: Python<'py>, levels: Vec<String>) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
        let faults = node_reader::unlabelled(&levels, &self.0).into_iter();
        faults.map(|(index, fault)| Ok((index, diagnostic(py, fault)?))).collect()
    }

    /// Return the hardware that is not healthy, or that another job has: by node rank, the local indices of accelerators, or
    /// `None` for the whole node.
    fn broken(&self) -> BTreeMap<u32, Option<RankSet>> {
        self.0.broken().into_iter().map(|(node, local)| (node.0, local.map(RankSet))).collect()
    }

    /// Return the kinds of nodes as plain values, as in an inventory file.
    fn described<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &py.detach(|| self.0.described()))
    }

    /// Return the same nodes, those that are marked not healthy, or taken by a job: by node rank, the local indices of the
    /// accelerators that are not healthy, or `None` for the whole node.
    #[pyo3(signature = (marks, job = None))]
    fn marked(&self, py: Python<'_>, marks: BTreeMap<u32, Option<RankSet>>, job: Option<&str>) -> Self {
        let marks: Vec<_> =
            marks.into_iter().map(|(node, local)| (NodeRank(node), local.map(|local| local.0))).collect();
        py.detach(|| Self::of(self.0.marked(&marks, job)))
    }

    /// Return the nodes of these ranks, numbered from 0 in this order. Raises `IndexError` for an unknown rank, and for more
    /// nodes than there are.
    fn reordered(&self, py: Python<'_>, order: Vec<u32>) -> PyResult<Self> {
        let found = py.detach(|| self.0.reordered(&order));
        found.map(Self::of).ok_or_else(|| PyIndexError::new_err("unknown node rank"))
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

    /// Return the nodes by the CPUs that can be reserved on them, ascending; those whose CPUs are unknown come first.
    fn nodes_by_cpus(&self) -> Vec<(Option<f64>, RankSet)> {
        let nodes = self.0.nodes_by_cpus().into_iter();
        nodes.map(|(cpus, nodes)| (cpus.map(Amount::number), RankSet(nodes))).collect()
    }

    /// Return the domains of the nodes at each of these levels; see `domains`.
    fn domains<'py>(&self, py: Python<'py>, levels: Vec<String>) -> PyResult<Vec<Level<'py>>> {
        levels_of(py, &py.detach(|| self.0.domains(&levels)))
    }

    /// Return all nodes as a trainer sorts them: `None` if what it sorts by is unknown for one of them. `ids` are Ray's ids
    /// of the nodes, by node rank. Raises `ValueError` for an unknown order.
    #[pyo3(signature = (how, ids = Vec::new()))]
    fn order(&self, py: Python<'_>, how: &str, ids: Vec<String>) -> PyResult<Option<Vec<u32>>> {
        let how = node_order(how)?;
        Ok(py.detach(|| self.0.order(how, &ids)))
    }

    /// Return what `order` does, but `None` also if the nodes are in that order already.
    #[pyo3(signature = (how, ids = Vec::new()))]
    fn other_order(&self, py: Python<'_>, how: &str, ids: Vec<String>) -> PyResult<Option<Vec<u32>>> {
        let how = node_order(how)?;
        Ok(py.detach(|| self.0.other_order(how, &ids)).map(|nodes| nodes.to_vec()))
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
