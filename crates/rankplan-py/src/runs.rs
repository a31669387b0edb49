//! `Run` and `Pattern`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use rankplan_core::Group;
use rankplan_core::Table;
use rankplan_core::runs::{Pattern as CorePattern, Runs};

/// Processes with consecutive ranks on one node, repeated on the following nodes.
///
/// On node `node + i`, ranks start at `first_rank + i * pattern.processes`.
#[pyclass(frozen, eq, get_all, module = "rankplan._core")]
pub struct Run {
    /// Node rank of the first node.
    node: u32,
    /// Number of nodes, at least 1.
    nodes: u32,
    /// First process rank on the first node.
    first_rank: u32,
    /// The processes on each of the nodes. Equal patterns of one component are the same object.
    pattern: Py<Pattern>,
}

impl Run {
    fn key(&self) -> (u32, u32, u32, &Pattern) {
        (self.node, self.nodes, self.first_rank, self.pattern.get())
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

#[pymethods]
impl Run {
    fn __repr__(&self) -> String {
        let Run { node, nodes, first_rank, pattern } = self;
        format!("Run(node={node}, nodes={nodes}, first_rank={first_rank}, pattern={})", pattern.get().__repr__())
    }
}

/// The processes of a run on each of its nodes.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
pub struct Pattern {
    group: Group,
    pattern: Arc<CorePattern>,
    devices: PyOnceLock<Py<PyTuple>>,
}

impl Pattern {
    fn key(&self) -> (&Group, u32, &[u32], &[u16]) {
        (&self.group, self.pattern.processes, &self.pattern.ends, &self.pattern.devices)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[pymethods]
impl Pattern {
    /// Label of the node group that selected the nodes.
    #[getter]
    fn node_group(&self) -> &str {
        &self.group.label
    }

    /// Type of the resources: `accelerator`, `node` or a hardware type.
    #[getter]
    fn resource_type(&self) -> &str {
        self.group.kind.name()
    }

    /// Number of processes.
    #[getter]
    fn processes(&self) -> u32 {
        self.pattern.processes
    }

    /// Local indices of each process; empty if placed by node.
    #[getter]
    fn devices(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        let devices = self.devices.get_or_try_init(py, || {
            let processes = self.pattern.by_process().map(|devices| PyTuple::new(py, devices));
            PyResult::Ok(PyTuple::new(py, processes.collect::<PyResult<Vec<_>>>()?)?.unbind())
        });
        Ok(devices?.clone_ref(py))
    }

    fn __repr__(&self) -> String {
        let (label, kind, processes) = (self.node_group(), self.resource_type(), self.processes());
        format!("<Pattern of {processes} processes by {kind} in '{label}'>")
    }
}

/// The runs of a table as Python objects.
pub fn runs_of(py: Python<'_>, table: &Table, found: Runs) -> PyResult<Vec<Run>> {
    let pattern = |pattern: Arc<CorePattern>| {
        let group = table.groups()[pattern.group as usize].clone();
        Py::new(py, Pattern { group, pattern, devices: PyOnceLock::new() })
    };
    let patterns = found.patterns.into_iter().map(pattern).collect::<PyResult<Vec<_>>>()?;
    let run = |run: rankplan_core::Run| Run {
        node: run.node.0,
        nodes: run.nodes,
        first_rank: run.first_rank.0,
        pattern: patterns[run.pattern as usize].clone_ref(py),
    };
    Ok(found.runs.into_iter().map(run).collect())
}
