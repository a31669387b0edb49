//! `Placements`: the rows of one component.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyType};
use rankplan_core::words::count;
use rankplan_core::{Diagnostic, Inventory as CoreInventory, Pool, ProcessRank, Table};

use crate::columns::{State, arrays, state, table};
use crate::errors::OrRaise;
use crate::index::Index;
use crate::inventory::{Inventory, NodeState, node_states};
use crate::pickling::Reduced;
use crate::placement::Placement;
use crate::rank_set::RankSet;
use crate::runs::{Run, runs_of};
use crate::visibility::Visibility;

/// A sequence of `Placement`, in rank order. Rows are stored as columns; each access creates the object of a row.
#[pyclass(frozen, eq, sequence, module = "rankplan._core")]
#[derive(Clone)]
pub struct Placements {
    table: Arc<Table>,
    inventory: Arc<CoreInventory>,
    visibility: Visibility,
    start: isize,
    step: isize,
    len: usize,
}

impl Placements {
    pub fn new(table: Table, inventory: Arc<CoreInventory>, visibility: Visibility) -> Self {
        let len = table.len() as usize;
        Placements { table: Arc::new(table), inventory, visibility, start: 0, step: 1, len }
    }

    /// The resource ranks of each process in a pool.
    pub fn ranks_in(&self, pool: &Pool) -> Result<Vec<Vec<u32>>, Diagnostic> {
        rankplan_core::ranks_of(&self.table, self.ranks(), pool)
    }

    /// All rows of the component.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// All rows of the component, shared.
    pub fn shared_table(&self) -> Arc<Table> {
        self.table.clone()
    }

    /// The nodes that the rows are on.
    pub fn inventory(&self) -> &Arc<CoreInventory> {
        &self.inventory
    }

    /// The accelerators of all processes of the component, in the order of their ranks.
    pub fn all_taken(&self) -> Option<rankplan_core::Taken> {
        self.table.taken(&self.inventory)
    }

    /// The process ranks of the rows.
    fn ranks(&self) -> impl Iterator<Item = u32> + Clone {
        (0..self.len as isize).map(|index| (self.start + self.step * index) as u32)
    }

    fn placement(&self, index: usize) -> Option<Placement> {
        let rank = self.start + self.step * index as isize;
        let row = self.table.row(ProcessRank(u32::try_from(rank).ok()?))?;
        Some(Placement {
            rank: row.rank.0,
            world_size: self.table.len(),
            cluster_node_rank: row.cluster_node_rank.0,
            placement_node_rank: row.placement_node_rank,
            local_rank: row.local_rank,
            local_world_size: row.local_world_size,
            visibility: self.visibility,
            local: row.devices.into(),
            elsewhere: row.elsewhere.iter().map(|&(device, node)| (device - row.first_device, node)).collect(),
            groups: self.table.groups().clone(),
            group: row.group,
            node: self.inventory.spec(row.cluster_node_rank)?.clone(),
        })
    }

    fn rows(&self) -> impl Iterator<Item = Placement> {
        (0..self.len).filter_map(|index| self.placement(index))
    }
}

impl PartialEq for Placements {
    fn eq(&self, other: &Self) -> bool {
        if self.len != other.len || self.visibility != other.visibility {
            return false;
        }
        let same = self.whole() && other.whole() && self.inventory == other.inventory && self.table == other.table;
        same || self.rows().eq(other.rows())
    }
}

#[pymethods]
impl Placements {
    fn __len__(&self) -> usize {
        self.len
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let indices = slice.indices(self.len as isize)?;
            let start = self.start + self.step * indices.start;
            let part = Placements { start, step: self.step * indices.step, len: indices.slicelength, ..self.clone() };
            return Ok(Bound::new(py, part)?.into_any());
        }
        let position: Index = index.extract()?;
        match position.of(self.len).and_then(|at| self.placement(at)) {
            Some(placement) => Ok(Bound::new(py, placement)?.into_any()),
            None => Err(PyIndexError::new_err(format!("index {} is out of range for {} rows", position.0, self.len))),
        }
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PlacementIterator {
        PlacementIterator { placements: slf.clone().unbind(), index: 0 }
    }

    fn __contains__(&self, row: &Bound<'_, PyAny>) -> bool {
        row.cast::<Placement>().is_ok_and(|row| self.rows().any(|other| other == *row.get()))
    }

    /// Return the index of a row; raise `ValueError` if it is missing.
    fn index(&self, row: &Placement) -> PyResult<usize> {
        let position = self.rows().position(|other| other == *row);
        position.ok_or_else(|| PyValueError::new_err("the placement is not one of these rows"))
    }

    /// Return the number of rows equal to this one.
    fn count(&self, row: &Placement) -> usize {
        self.rows().filter(|other| other == row).count()
    }

    /// Number of processes of the component.
    #[getter]
    fn world_size(&self) -> u32 {
        self.table.len()
    }

    /// Whether each process sees only its own accelerators.
    #[getter]
    fn isolate_accelerator(&self) -> bool {
        self.visibility == Visibility::Own
    }

    /// Which accelerators each process sees: `own`, `node` or `own-first`.
    #[getter]
    fn visibility(&self) -> Visibility {
        self.visibility
    }

    /// Memory of the columns in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.table.bytes()
    }

    /// Return the accelerators that these processes use, counted node by node over the whole cluster.
    fn accelerators(&self, py: Python<'_>) -> RankSet {
        RankSet(py.detach(|| self.table.accelerators(&self.inventory, self.ranks())))
    }

    /// Whether these are all rows of the component, in rank order, and not a slice.
    #[getter]
    fn whole(&self) -> bool {
        self.start == 0 && self.step == 1 && self.len == self.table.len() as usize
    }

    /// Return the runs of rows on one node, in rank order; equal runs on consecutive nodes are folded into one.
    ///
    /// A process with resources on several nodes is a run on each of them; with `at_home`, it is on its own node with all
    /// its devices.
    #[pyo3(signature = (at_home = false))]
    fn runs(&self, py: Python<'_>, at_home: bool) -> PyResult<Vec<Run>> {
        runs_of(py, &self.table, py.detach(|| self.table.runs(self.ranks(), at_home)))
    }

    /// Return the same places over another inventory, with its accelerator types and ids.
    ///
    /// Raises `PlacementError` if the inventory lacks one of the nodes or accelerators.
    fn on(&self, py: Python<'_>, inventory: &Inventory) -> PyResult<Self> {
        py.detach(|| self.table.fits(&inventory.0)).or_raise(py, None)?;
        Ok(Placements { inventory: inventory.0.clone(), ..self.clone() })
    }

    /// Return the same rows with another visibility.
    fn seeing(&self, visibility: Visibility) -> Self {
        Placements { visibility, ..self.clone() }
    }

    /// Return the columns as NumPy arrays by name: `rank`, `cluster_node_rank`, `placement_node_rank`, `local_rank` and
    /// `local_world_size` have shape (len,). `device_starts`, shape (len + 1,), delimits each row's part of `devices` (local
    /// indices) and `device_node_rank` (their nodes). Raises `ImportError` without NumPy.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        arrays(py, &self.table, self.ranks(), self.whole())
    }

    fn __repr__(&self) -> String {
        let labels = self.table.groups();
        let mut groups = labels.iter().take(4).map(|group| group.label.as_str()).collect::<Vec<_>>().join(",");
        if labels.len() > 4 {
            groups.push_str(",...");
        }
        let rows = self.ranks().filter_map(|rank| self.table.row(ProcessRank(rank)));
        let nodes: rankplan_core::RankSet = rows.map(|row| row.cluster_node_rank.0).collect();
        let (processes, nodes) = (count(self.len as u32, "process"), count(nodes.len(), "node"));
        format!("<Placements of {processes} on {nodes} of '{groups}'>")
    }

    /// Return the columns as bytes, for `from_state`.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<State<'py>> {
        state(py, &self.table)
    }

    /// Restore placements from `state()`; raise `PlacementError` if the columns contradict each other or the inventory.
    #[classmethod]
    fn from_state(
        class: &Bound<'_, PyType>,
        inventory: &Inventory,
        visibility: Visibility,
        state: State<'_>,
    ) -> PyResult<Self> {
        Ok(Placements::new(table(class.py(), &inventory.0, state)?, inventory.0.clone(), visibility))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (Vec<NodeState>, Visibility, State<'py>, SliceState)> {
        let rows = slf.get();
        let slice = (rows.start, rows.step, rows.len);
        let state = (node_states(&rows.inventory), rows.visibility, rows.state(slf.py())?, slice);
        Ok((slf.get_type().getattr("_restore")?, state))
    }

    #[classmethod]
    fn _restore(
        class: &Bound<'_, PyType>,
        nodes: Vec<NodeState>,
        visibility: Visibility,
        state: State<'_>,
        slice: SliceState,
    ) -> PyResult<Self> {
        let (start, step, len) = slice;
        let whole = Placements::from_state(class, &Inventory::from_state(class.py(), nodes)?, visibility, state)?;
        let last = (len as isize - 1).checked_mul(step).and_then(|steps| steps.checked_add(start));
        let rows = 0..whole.len as isize;
        if len > 0 && !(rows.contains(&start) && last.is_some_and(|last| rows.contains(&last))) {
            return Err(PyValueError::new_err(format!("the slice is out of range for {} rows", whole.len)));
        }
        Ok(Placements { start, step, len, ..whole })
    }
}

/// Start, step and length of a slice.
type SliceState = (isize, isize, usize);

#[pyclass(module = "rankplan._core")]
struct PlacementIterator {
    placements: Py<Placements>,
    index: usize,
}

#[pymethods]
impl PlacementIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<Placement> {
        let placements = self.placements.get();
        let placement = placements.placement(self.index).filter(|_| self.index < placements.len)?;
        self.index += 1;
        Some(placement)
    }
}
