//! `NodeSpec`, and the facts of its accelerators and network cards.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rankplan_core::amounts::Amount;
use rankplan_core::node::Node;
use rankplan_core::node_reader::{NODE, change, read_node};
use rankplan_core::read::names::Names;
use rankplan_core::read::place::Place;
use rankplan_core::read::reader::Reader;
use rankplan_core::read::value::Value;

use crate::errors::OrRaise;
use crate::pickling::Reduced;
use crate::rank_set::RankSet;
use crate::value::{to_python, value_of};

/// One node, or several equal ones: their ranks, accelerators and names.
///
/// The same record serves an entry of an inventory file, a probed node and the core. The keywords are the keys of an
/// entry; `accelerators` is the number of accelerators, or a list of them. `accelerator_type` and `accelerator_ids` (the
/// node's own ids, by local index) always have a value; `states` tells whether it was given. No process may use a node
/// that is not `healthy` or that another job has (`taken`: its name), nor the accelerators whose local indices are
/// `unhealthy`. `cpus`, `reservable_memory` (MiB) and the custom `resources` are what Ray, Slurm or Kubernetes lets jobs
/// reserve there; `None`, or a missing name, is unknown.
///
/// Every hardware fact may be missing. `numa` has the CPUs that processes may use, by NUMA node; `memory` the size of each
/// NUMA node with memory, in MiB. `sockets` are the NUMA nodes of each package, `cores` the threads of each physical core,
/// `caches` the CPUs of each largest cache. `devices` describes the accelerators by local index.
///
/// Raises `PlacementError` with every fault.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct NodeSpec {
    ranks: rankplan_core::RankSet,
    node: Arc<Node>,
}

impl NodeSpec {
    pub fn new(ranks: rankplan_core::RankSet, node: Arc<Node>) -> Self {
        NodeSpec { ranks, node }
    }

    /// The ranks and the record.
    pub fn entry(&self) -> (rankplan_core::RankSet, Arc<Node>) {
        (self.ranks.clone(), self.node.clone())
    }

    fn read(py: Python<'_>, fields: &Value, names: Option<&Names>) -> PyResult<Self> {
        let mut reader = Reader::new(names);
        match read_node(&mut reader, fields, &Place::WHOLE) {
            Some((ranks, node)) if reader.faults.is_empty() => Ok(NodeSpec::new(ranks, Arc::new(node))),
            _ => Err(reader.faults).or_raise(py, None),
        }
    }
}

/// The names that programs register: `rankplan.accelerators.TYPES` and the types of other hardware.
pub fn known_names(py: Python<'_>) -> PyResult<Names> {
    let accelerators = py.import("rankplan.accelerators")?.getattr("TYPES")?.extract()?;
    let hardware = py.import("rankplan.hardware.types")?.getattr("HARDWARE_TYPES")?.extract()?;
    Ok(Names { accelerators, hardware, variables: Vec::new() })
}

/// The same names, and the environment variables that a plan sets: `rankplan.environment.reserved_variables()`.
pub fn known_names_and_variables(py: Python<'_>) -> PyResult<Names> {
    let variables: HashSet<String> =
        py.import("rankplan.environment")?.call_method0("reserved_variables")?.extract()?;
    Ok(Names { variables: variables.into_iter().collect(), ..known_names(py)? })
}

/// The fields in the order of their table: an attribute with another name has that.
fn field_name(attribute: &str) -> &str {
    if attribute == "num_accelerators" { "accelerators" } else { attribute }
}

fn sets(sets: &[rankplan_core::RankSet]) -> Vec<RankSet> {
    sets.iter().cloned().map(RankSet).collect()
}

#[pymethods]
impl NodeSpec {
    #[new]
    #[pyo3(signature = (**fields))]
    fn py_new(py: Python<'_>, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let fields = fields.map_or_else(|| Ok(Value::map([])), |fields| value_of(fields))?;
        Self::read(py, &fields, Some(&known_names(py)?))
    }

    /// Restore a record from `__reduce__`: its ranks, its facts, and the names of the fields that are stated.
    #[staticmethod]
    fn _restore(py: Python<'_>, ranks: &RankSet, fields: &Bound<'_, PyDict>, stated: Vec<String>) -> PyResult<Self> {
        fields.set_item("ranks", "")?;
        let mut node = Node::clone(&Self::read(py, &value_of(fields)?, None)?.node);
        node.stated = stated.iter().filter_map(|name| NODE.field(name)).map(|field| field.name).collect();
        Ok(NodeSpec::new(ranks.0.clone(), Arc::new(node)))
    }

    /// The node ranks.
    #[getter]
    fn ranks(&self) -> RankSet {
        RankSet(self.ranks.clone())
    }

    /// The node rank; of several equal nodes, that of the first.
    #[getter]
    fn rank(&self) -> PyResult<u32> {
        self.ranks.nth(0).ok_or_else(|| PyIndexError::new_err("the record has no node rank"))
    }

    /// The hostname, else the address, else `node-3`.
    #[getter]
    fn name(&self) -> PyResult<String> {
        match self.node.hostname.as_ref().or(self.node.ip.as_ref()) {
            Some(name) => Ok(name.to_string()),
            None => Ok(format!("node-{}", self.rank()?)),
        }
    }

    #[getter]
    fn num_accelerators(&self) -> u32 {
        self.node.num_accelerators()
    }

    #[getter]
    fn accelerator_type(&self) -> &str {
        &self.node.accelerators.accelerator_type
    }

    #[getter]
    fn accelerator_model(&self) -> Option<&str> {
        self.node.model.as_deref()
    }

    #[getter]
    fn accelerator_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.node.accelerators.accelerator_ids)
    }

    #[getter]
    fn ip(&self) -> Option<&str> {
        self.node.ip.as_deref()
    }

    #[getter]
    fn hostname(&self) -> Option<&str> {
        self.node.hostname.as_deref()
    }

    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let labels = PyDict::new(py);
        for (key, label) in self.node.labels.iter() {
            labels.set_item(key.as_str(), label.as_str())?;
        }
        Ok(labels)
    }

    #[getter]
    fn hardware<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let hardware = PyDict::new(py);
        for (kind, count) in self.node.hardware.iter() {
            hardware.set_item(kind, count)?;
        }
        Ok(hardware)
    }

    #[getter]
    fn healthy(&self) -> bool {
        self.node.healthy
    }

    #[getter]
    fn unhealthy(&self) -> RankSet {
        RankSet(self.node.unhealthy.clone())
    }

    #[getter]
    fn taken(&self) -> Option<&str> {
        self.node.taken.as_deref()
    }

    /// CPUs that can be reserved.
    #[getter]
    fn cpus(&self) -> Option<f64> {
        self.node.reservable.cpus.map(Amount::number)
    }

    /// MiB of memory that can be reserved.
    #[getter]
    fn reservable_memory(&self) -> Option<u64> {
        self.node.reservable.memory
    }

    /// Amounts of custom resources, by name.
    #[getter]
    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let resources = PyDict::new(py);
        for (name, amount) in self.node.reservable.custom.iter() {
            resources.set_item(name, amount.number())?;
        }
        Ok(resources)
    }

    #[getter]
    fn numa<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let numa = PyDict::new(py);
        for (node, cpus) in self.node.facts.numa.iter() {
            numa.set_item(node, Bound::new(py, RankSet(cpus.clone()))?)?;
        }
        Ok(numa)
    }

    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let memory = PyDict::new(py);
        for (node, size) in self.node.facts.memory.iter() {
            memory.set_item(node, size)?;
        }
        Ok(memory)
    }

    #[getter]
    fn sockets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, sets(&self.node.facts.sockets))
    }

    #[getter]
    fn cores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, sets(&self.node.facts.cores))
    }

    #[getter]
    fn caches<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, sets(&self.node.facts.caches))
    }

    #[getter]
    fn nics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.node.facts.nics.iter().cloned().map(NicFacts))
    }

    #[getter]
    fn devices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.node.facts.devices.iter().cloned().map(AcceleratorFacts))
    }

    /// The facts of the machine as JSON: equal for equal facts, empty without any.
    #[getter]
    fn facts(&self) -> String {
        self.node.facts.json()
    }

    /// Return whether the source of the record gave this field.
    fn states(&self, field: &str) -> bool {
        self.node.states(field_name(field))
    }

    /// Return the same record for other node ranks; this one if it has them.
    fn at<'py>(slf: &Bound<'py, Self>, ranks: &RankSet) -> PyResult<Bound<'py, Self>> {
        let this = slf.get();
        if this.ranks == ranks.0 {
            return Ok(slf.clone());
        }
        Bound::new(slf.py(), NodeSpec::new(ranks.0.clone(), this.node.clone()))
    }

    /// Return the record with other values; `None` removes one that may be missing. Raises `PlacementError` for values
    /// that are not valid.
    #[pyo3(signature = (**fields))]
    fn changed(&self, py: Python<'_>, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut node = Node::clone(&self.node);
        let mut values = Vec::new();
        for (name, value) in fields.into_iter().flatten() {
            values.push((name.extract::<String>()?, value_of(&value)?));
        }
        let ranks = change(&mut node, &values).or_raise(py, None)?;
        Ok(NodeSpec::new(ranks.unwrap_or_else(|| self.ranks.clone()), Arc::new(node)))
    }

    /// Return the local index of each accelerator that should not be used, with the reason.
    fn problems(&self) -> Vec<(usize, &str)> {
        let devices = self.node.facts.devices.iter().enumerate();
        devices.filter_map(|(index, device)| Some((index, device.problem.as_deref()?))).collect()
    }

    /// Return the stated fields as plain values, as in an inventory file.
    fn described<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.node.described(&self.ranks))
    }

    /// Return every field but the ranks as plain values, those that are not known as `None` or empty.
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.node.fields())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let described = self.described(py)?;
        let fields = described.cast::<PyDict>()?.iter();
        let fields = fields.map(|(name, value)| Ok(format!("{}={}", name.extract::<String>()?, value.repr()?)));
        Ok(format!("NodeSpec({})", fields.collect::<PyResult<Vec<_>>>()?.join(", ")))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (RankSet, Bound<'py, PyAny>, Vec<&'static str>)> {
        let this = slf.get();
        let state = (this.ranks(), this.described(slf.py())?, this.node.stated.clone());
        Ok((slf.get_type().getattr("_restore")?, state))
    }
}

/// Facts of one accelerator beside its id. Every field may be missing.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct AcceleratorFacts(rankplan_core::node::Device);

#[pymethods]
impl AcceleratorFacts {
    #[getter]
    fn uuid(&self) -> Option<&str> {
        self.0.uuid.as_deref()
    }

    #[getter]
    fn pci(&self) -> Option<&str> {
        self.0.pci.as_deref()
    }

    #[getter]
    fn numa(&self) -> Option<u32> {
        self.0.numa
    }

    #[getter]
    fn model(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    /// In MiB.
    #[getter]
    fn memory(&self) -> Option<u64> {
        self.0.memory
    }

    /// The network card to use.
    #[getter]
    fn nic(&self) -> Option<&str> {
        self.0.nic.as_deref()
    }

    /// How far that card is, as in `DISTANCES`.
    #[getter]
    fn distance(&self) -> Option<&str> {
        self.0.distance.as_deref()
    }

    /// Why the accelerator is not healthy.
    #[getter]
    fn problem(&self) -> Option<&str> {
        self.0.problem.as_deref()
    }
}

/// Facts of a network card.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct NicFacts(rankplan_core::node::Nic);

#[pymethods]
impl NicFacts {
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn active(&self) -> bool {
        self.0.active
    }

    #[getter]
    fn bonded(&self) -> bool {
        self.0.bonded
    }

    /// In Gbit/s.
    #[getter]
    fn rate(&self) -> Option<f64> {
        self.0.rate
    }

    #[getter]
    fn pci(&self) -> Option<&str> {
        self.0.pci.as_deref()
    }

    #[getter]
    fn numa(&self) -> Option<u32> {
        self.0.numa
    }
}
