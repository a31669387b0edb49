//! `Placements`: the rows of one component.

use std::iter::repeat_n;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySlice, PyType};
use rankplan_core::Group;
use rankplan_core::columns::Columns;
use rankplan_core::{Diagnostic, Inventory as CoreInventory, Pool, ProcessRank, Table};

use crate::Reduced;
use crate::errors::refuse;
use crate::inventory::{Inventory, NodeState, node_states};
use crate::placement::Placement;
use crate::rank_set::RankSet;
use crate::runs::{Run, runs_of};

/// A sequence of `Placement`, in rank order. Rows are kept as columns, and one becomes an object when it is asked for.
#[pyclass(frozen, eq, sequence, module = "rankplan._core")]
#[derive(Clone)]
pub struct Placements {
    table: Arc<Table>,
    inventory: Arc<CoreInventory>,
    isolate: bool,
    start: isize,
    step: isize,
    len: usize,
}

impl Placements {
    pub fn new(table: Table, inventory: Arc<CoreInventory>, isolate: bool) -> Self {
        let len = table.len() as usize;
        Placements { table: Arc::new(table), inventory, isolate, start: 0, step: 1, len }
    }

    /// The resource ranks of each process in a pool.
    pub fn ranks_in(&self, pool: &Pool) -> Result<Vec<Vec<u32>>, Diagnostic> {
        rankplan_core::ranks_of(&self.table, self.ranks(), pool)
    }

    fn is_whole(&self) -> bool {
        self.start == 0 && self.step == 1 && self.len == self.table.len() as usize
    }

    /// The process ranks of the rows.
    fn ranks(&self) -> impl Iterator<Item = u32> {
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
            isolate_accelerator: self.isolate,
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
        if self.len != other.len || self.isolate != other.isolate {
            return false;
        }
        if self.is_whole() && other.is_whole() && self.inventory == other.inventory && self.table == other.table {
            return true;
        }
        self.rows().eq(other.rows())
    }
}

/// Columns, of numbers as little-endian bytes, for pickles and saved plans: groups, stretches, nodes, device starts, devices,
/// and the devices on other nodes.
type PlacementsState<'py> = (
    Vec<(String, String)>,
    Vec<(u32, u32)>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Vec<(u32, u32)>,
);

/// Write numbers into a `bytes` of their number, without another copy of them.
fn packed<const SIZE: usize>(
    py: Python<'_>,
    len: usize,
    numbers: impl Iterator<Item = [u8; SIZE]>,
) -> PyResult<Bound<'_, PyBytes>> {
    PyBytes::new_with(py, SIZE * len, |bytes| {
        let (places, _) = bytes.as_chunks_mut::<SIZE>();
        places.iter_mut().zip(numbers).for_each(|(place, number)| *place = number);
        Ok(())
    })
}

fn words<'py>(py: Python<'py>, column: &[u32]) -> PyResult<Bound<'py, PyBytes>> {
    packed(py, column.len(), column.iter().map(|word| word.to_le_bytes()))
}

fn halves<'py>(py: Python<'py>, column: &[u16]) -> PyResult<Bound<'py, PyBytes>> {
    packed(py, column.len(), column.iter().map(|half| half.to_le_bytes()))
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
        let position: isize = index.extract()?;
        let at = if position < 0 { position + self.len as isize } else { position };
        match usize::try_from(at).ok().filter(|&at| at < self.len).and_then(|at| self.placement(at)) {
            Some(placement) => Ok(Bound::new(py, placement)?.into_any()),
            None => Err(PyIndexError::new_err(format!("row {position} of {} placements", self.len))),
        }
    }

    fn __iter__(slf: &Bound<'_, Self>) -> PlacementIterator {
        PlacementIterator { placements: slf.clone().unbind(), index: 0 }
    }

    fn __contains__(&self, row: &Bound<'_, PyAny>) -> bool {
        row.cast::<Placement>().is_ok_and(|row| self.rows().any(|other| other == *row.get()))
    }

    /// Return the position of a row; `ValueError` when it is not there.
    fn index(&self, row: &Placement) -> PyResult<usize> {
        self.rows().position(|other| other == *row).ok_or_else(|| PyValueError::new_err("the placement is not here"))
    }

    /// Return how many rows equal this one.
    fn count(&self, row: &Placement) -> usize {
        self.rows().filter(|other| other == row).count()
    }

    /// Number of processes of the component.
    #[getter]
    fn world_size(&self) -> u32 {
        self.table.len()
    }

    /// Whether each process sees its own accelerators only.
    #[getter]
    fn isolate_accelerator(&self) -> bool {
        self.isolate
    }

    /// Bytes that the columns take.
    #[getter]
    fn nbytes(&self) -> usize {
        self.table.bytes()
    }

    /// Return the accelerators that the component uses, counted node by node over the whole cluster.
    fn accelerators(&self, py: Python<'_>) -> RankSet {
        RankSet(py.detach(|| self.table.accelerators(&self.inventory, self.ranks())))
    }

    /// Whether these are all processes of the component, in rank order, and not a slice.
    #[getter]
    fn whole(&self) -> bool {
        self.is_whole()
    }

    /// Return the runs of rows on one node, in rank order; equal ones on consecutive nodes are folded.
    ///
    /// A process with resources on several nodes is a run on each of them; `at_home`, it stays on its own node with all its
    /// devices.
    #[pyo3(signature = (at_home = false))]
    fn runs(&self, py: Python<'_>, at_home: bool) -> PyResult<Vec<Run>> {
        runs_of(py, &self.table, py.detach(|| self.table.runs(self.ranks(), at_home)))
    }

    /// Return the same places over another inventory, which types and ids then come from.
    ///
    /// Raises `PlacementError` when a node or an accelerator is not there.
    fn on(&self, py: Python<'_>, inventory: &Inventory) -> PyResult<Self> {
        py.detach(|| self.table.fits(&inventory.0)).map_err(|fault| refuse(py, None, vec![fault]))?;
        Ok(Placements { inventory: inventory.0.clone(), ..self.clone() })
    }

    /// Return the same rows with another visibility.
    fn isolated(&self, isolate: bool) -> Self {
        Placements { isolate, ..self.clone() }
    }

    /// Return the columns as NumPy arrays by name: `rank`, `cluster_node_rank`, `placement_node_rank`, `local_rank`,
    /// `local_world_size` have shape (len,), `device_starts` (len + 1,) gives each row's part of `devices`, which holds local
    /// indices, and of `device_node_rank`, the nodes these are on. Raises `ImportError` without NumPy.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (numpy, columns) = (py.import("numpy")?, PyDict::new(py));
        let set = |name, bytes: PyResult<Bound<'_, PyBytes>>, kind| {
            columns.set_item(name, numpy.call_method1("frombuffer", (bytes?, kind))?)
        };
        let table = &*self.table;
        let (places, sizes) = (table.placement_node_rank(), table.local_world_size());
        let of_rows = |column: &[u32]| match self.is_whole() {
            true => words(py, column),
            false => packed(py, self.len, self.ranks().map(|rank| column[rank as usize].to_le_bytes())),
        };
        set("rank", packed(py, self.len, self.ranks().map(u32::to_le_bytes)), "<u4")?;
        set("cluster_node_rank", of_rows(table.cluster_node_rank()), "<u4")?;
        set("placement_node_rank", of_rows(places), "<u4")?;
        set("local_rank", of_rows(table.local_rank()), "<u4")?;
        let sizes = self.ranks().map(|rank| sizes[places[rank as usize] as usize].to_le_bytes());
        set("local_world_size", packed(py, self.len, sizes), "<u4")?;

        let devices_of = |rank| table.devices_of(ProcessRank(rank));
        let num_devices = self.ranks().map(|rank| devices_of(rank).len()).sum();
        if self.is_whole() && !table.device_starts().is_empty() {
            set("device_starts", words(py, table.device_starts()), "<u4")?;
            set("devices", halves(py, table.devices()), "<u2")?;
        } else {
            let ends = self.ranks().scan(0, |end, rank| {
                *end += devices_of(rank).len() as u32;
                Some(*end)
            });
            let starts = std::iter::once(0).chain(ends).map(u32::to_le_bytes);
            set("device_starts", packed(py, self.len + 1, starts), "<u4")?;
            let devices = self.ranks().flat_map(|rank| &table.devices()[devices_of(rank)]);
            set("devices", packed(py, num_devices, devices.map(|device| device.to_le_bytes())), "<u2")?;
        }
        let nodes = if table.elsewhere().is_empty() {
            let here = |rank| repeat_n(table.cluster_node_rank()[rank as usize].to_le_bytes(), devices_of(rank).len());
            packed(py, num_devices, self.ranks().flat_map(here))
        } else {
            let rows = self.ranks().filter_map(|rank| table.row(ProcessRank(rank)));
            packed(py, num_devices, rows.flat_map(|row| row.places()).map(|(node, _)| node.0.to_le_bytes()))
        };
        set("device_node_rank", nodes, "<u4")?;
        Ok(columns)
    }

    fn __repr__(&self) -> String {
        let labels = self.table.groups();
        let mut groups = labels.iter().take(4).map(|group| group.label.as_str()).collect::<Vec<_>>().join(",");
        if labels.len() > 4 {
            groups.push_str(",...");
        }
        let rows = self.ranks().filter_map(|rank| self.table.row(ProcessRank(rank)));
        let nodes: rankplan_core::RankSet = rows.map(|row| row.cluster_node_rank.0).collect();
        format!("<Placements of {} processes on {} nodes of '{groups}'>", self.len, nodes.len())
    }

    /// The columns as bytes; see `from_state`.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<PlacementsState<'py>> {
        let table = &self.table;
        let groups = table.groups().iter().map(|group| (group.label.clone(), group.kind.name().to_owned())).collect();
        let nodes = words(py, table.cluster_node_rank())?;
        let (starts, devices) = (words(py, table.device_starts())?, halves(py, table.devices())?);
        Ok((groups, table.group_starts().to_vec(), nodes, starts, devices, table.elsewhere().to_vec()))
    }

    /// Placements from what `state` gave; `PlacementError` when it contradicts itself or the inventory.
    #[classmethod]
    fn from_state(
        class: &Bound<'_, PyType>,
        inventory: &Inventory,
        isolate: bool,
        state: PlacementsState<'_>,
    ) -> PyResult<Self> {
        let (groups, group_starts, nodes, starts, devices, elsewhere) = state;
        let words = |bytes: &Bound<'_, PyBytes>| {
            let (words, _) = bytes.as_bytes().as_chunks::<4>();
            words.iter().map(|word| u32::from_le_bytes(*word)).collect::<Vec<_>>()
        };
        let (halves, _) = devices.as_bytes().as_chunks::<2>();
        let columns = Columns {
            groups: groups.into_iter().map(|(label, kind)| Group { label, kind: kind.into() }).collect(),
            group_starts,
            cluster_node_rank: words(&nodes),
            device_starts: words(&starts),
            devices: halves.iter().map(|half| u16::from_le_bytes(*half)).collect(),
            elsewhere,
        };
        let table =
            Table::from_columns(columns, &inventory.0).map_err(|fault| refuse(class.py(), None, vec![fault]))?;
        Ok(Placements::new(table, inventory.0.clone(), isolate))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> Reduced<'py, (Vec<NodeState>, bool, PlacementsState<'py>, SliceState)> {
        let rows = slf.get();
        let state =
            (node_states(&rows.inventory), rows.isolate, rows.state(slf.py())?, (rows.start, rows.step, rows.len));
        Ok((slf.get_type().getattr("_restore")?, state))
    }

    #[classmethod]
    fn _restore(
        class: &Bound<'_, PyType>,
        specs: Vec<NodeState>,
        isolate: bool,
        state: PlacementsState<'_>,
        slice: SliceState,
    ) -> PyResult<Self> {
        let (start, step, len) = slice;
        let inventory = Inventory::from_state(class.py(), specs)?;
        let whole = Placements::from_state(class, &inventory, isolate, state)?;
        let last = (len as isize - 1).checked_mul(step).and_then(|steps| steps.checked_add(start));
        let rows = 0..whole.len as isize;
        if len > 0 && !(rows.contains(&start) && last.is_some_and(|last| rows.contains(&last))) {
            return Err(PyValueError::new_err(format!("the slice is not of {} rows", whole.len)));
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
