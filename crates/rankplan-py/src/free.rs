//! `Free` and `Taken`: accelerators that are free, and those that were taken.

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use rankplan_core::{Fill, RankRange};

use crate::errors::OrRaise;
use crate::inventory::{Inventory, node_order};
use crate::pickling::Reduced;
use crate::rank_set::RankSet;
use crate::rules::Chunks;

/// Accelerators in the order taken, counted node by node over the cluster. `len()` is their number.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Taken(pub rankplan_core::Taken);

fn too_many() -> PyErr {
    PyOverflowError::new_err("more accelerators than 32 bits count")
}

#[pymethods]
impl Taken {
    /// The first and the last one of each range, in this order.
    #[new]
    #[pyo3(signature = (ranges = Vec::new()))]
    fn new(ranges: Vec<(u32, u32)>) -> PyResult<Self> {
        let range = |(first, last)| {
            RankRange::new(first, last).ok_or_else(|| PyValueError::new_err(format!("{first}-{last} is no range")))
        };
        let ranges = ranges.into_iter().map(range).collect::<PyResult<Vec<_>>>()?;
        rankplan_core::Taken::from_ranges(ranges).map(Taken).ok_or_else(too_many)
    }

    /// Return these nodes in turn, again and again, until there are so many. Raises `ValueError` without nodes.
    #[staticmethod]
    fn in_turn(nodes: &RankSet, count: u32) -> PyResult<Self> {
        let found = rankplan_core::Taken::in_turn(&nodes.0, count);
        found.map(Taken).ok_or_else(|| PyValueError::new_err("there is no node to take"))
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __add__(&self, other: &Taken) -> PyResult<Self> {
        self.0.then(&other.0).map(Taken).ok_or_else(too_many)
    }

    /// The first and the last one of each range, in the order taken.
    #[getter]
    fn ranges(&self) -> Vec<(u32, u32)> {
        self.0.ranges().iter().map(|range| (range.first(), range.last())).collect()
    }

    /// All of them, each once.
    #[getter]
    fn accelerators(&self) -> RankSet {
        RankSet(self.0.accelerators())
    }

    /// The first one. Raises `IndexError` if there is none.
    #[getter]
    fn first(&self) -> PyResult<u32> {
        let first = self.0.ranges().first().map(|range| range.first());
        first.ok_or_else(|| PyIndexError::new_err("nothing was taken"))
    }

    /// Return those from one position up to another; positions after the last one are left out.
    fn slice(&self, start: u64, stop: u64) -> Self {
        let position = |at: u64| at.min(u64::from(self.0.len())) as u32;
        Taken(self.0.slice(position(start)..position(stop)))
    }

    /// Return for each of several how many of them have the accelerator that most of them have, of those in it.
    #[staticmethod]
    fn most_users(several: Vec<Bound<'_, Taken>>) -> Vec<u32> {
        let lists: Vec<_> = several.iter().map(|taken| taken.get().0.clone()).collect();
        rankplan_core::Taken::most_users(&lists)
    }

    /// Return the rule of processes with `each` of them. Raises `PlacementError`.
    fn chunks(&self, py: Python<'_>, each: u32) -> PyResult<Chunks> {
        self.0.chunks(each).or_raise(py, None).map(Chunks)
    }

    /// Return the node of the first one of each chunk of `each`.
    #[pyo3(signature = (inventory, each = 1))]
    fn nodes(&self, inventory: &Inventory, each: u32) -> Vec<u32> {
        self.0.nodes(&inventory.0, each).map(|node| node.0).collect()
    }

    /// Return the number of accelerators of the largest node that they are on; 0 if there are none.
    fn largest_node(&self, inventory: &Inventory) -> u32 {
        self.0.largest_node(&inventory.0)
    }

    /// Return the nodes that they are on.
    fn used_nodes(&self, inventory: &Inventory) -> RankSet {
        RankSet(self.0.used_nodes(&inventory.0))
    }

    /// Return the nodes on which a chunk of `each` starts.
    fn starting_nodes(&self, inventory: &Inventory, each: u32) -> RankSet {
        RankSet(self.0.starting_nodes(&inventory.0, each))
    }

    /// Return the first process of `each` that gets the host of another node, or the ports of another process, if a trainer
    /// counts `together` of them on a node: the process, its node, the other process, and the node of that.
    fn miscounted(&self, inventory: &Inventory, each: u32, together: u32) -> Option<(u32, u32, u32, u32)> {
        let found = self.0.miscounted(&inventory.0, each, together)?;
        Some((found.process, found.node.0, found.other, found.other_node.0))
    }

    /// Return the first engine with two of its `groups` groups of `each` on one node, and the node of its first group.
    fn sharing_numbers(&self, inventory: &Inventory, each: u32, groups: u32) -> Option<(u32, u32)> {
        self.0.sharing_numbers(&inventory.0, each, groups).map(|(engine, node)| (engine, node.0))
    }

    /// Return the first chunk of `each` that starts on one node and ends on another, and these nodes.
    fn torn(&self, inventory: &Inventory, each: u32) -> Option<(u32, u32, u32)> {
        self.0.torn(&inventory.0, each).map(|torn| (torn.chunk, torn.first.0, torn.last.0))
    }

    fn __repr__(&self) -> String {
        format!("<Taken: {} accelerators in {} ranges>", self.0.len(), self.0.ranges().len())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (Vec<(u32, u32)>,)> {
        Ok((slf.get_type().into_any(), (slf.get().ranges(),)))
    }
}

/// Why accelerators cannot be taken.
#[pyclass(frozen, module = "rankplan._core")]
pub struct Short(rankplan_core::Short);

#[pymethods]
impl Short {
    /// Accelerators that are free on all nodes together.
    #[getter]
    fn free(&self) -> u32 {
        self.0.free
    }

    /// Bundles before the one without room, which stay taken.
    #[getter]
    fn bundles(&self) -> u32 {
        self.0.bundles
    }

    /// Size of the bundle without room; `None` if there are too few accelerators in all.
    #[getter]
    fn size(&self) -> Option<u32> {
        self.0.size
    }

    fn __repr__(&self) -> String {
        format!("<Short: {} free, {} bundles taken>", self.0.free, self.0.bundles)
    }
}

/// Taken accelerators, or why they cannot be taken.
#[derive(IntoPyObject)]
pub enum Outcome {
    Taken(Taken),
    Short(Short),
}

/// The free accelerators of the nodes of a cluster. Whatever is taken is no longer free.
///
/// Every method takes accelerators in another way, and returns `Short` if it cannot.
#[pyclass(module = "rankplan._core")]
pub struct Free(rankplan_core::Free);

impl Free {
    fn outcome(&mut self, py: Python<'_>, count: u32, fill: Fill<'_>) -> Outcome {
        match py.detach(|| self.0.take(count, fill)) {
            Ok(taken) => Outcome::Taken(Taken(taken)),
            Err(short) => Outcome::Short(Short(short)),
        }
    }
}

#[pymethods]
impl Free {
    /// The accelerators that are not excluded. `order` is what the nodes are sorted by, if their names are known; those of
    /// a node are sorted `by_id`, or by their index. Raises `ValueError` for an unknown order.
    #[new]
    #[pyo3(signature = (inventory, excluded, order = None, *, by_id = false))]
    fn new(
        py: Python<'_>,
        inventory: &Inventory,
        excluded: &RankSet,
        order: Option<&str>,
        by_id: bool,
    ) -> PyResult<Self> {
        let order = order.map(node_order).transpose()?;
        let make = if by_id { rankplan_core::Free::by_id } else { rankplan_core::Free::new };
        Ok(Free(py.detach(|| {
            let nodes = order.and_then(|order| inventory.0.other_order(order, &[]));
            make(&inventory.0, &excluded.0, nodes.as_deref())
        })))
    }

    /// Return the first `each` accelerators of these nodes, excluded or not.
    #[staticmethod]
    fn first_of(inventory: &Inventory, start: u32, stop: u32, each: u32) -> Self {
        Free(rankplan_core::Free::first_of(&inventory.0, start..stop, each))
    }

    /// Number of free accelerators.
    #[getter]
    fn left(&self) -> u32 {
        self.0.left()
    }

    /// The most accelerators that are free on a node.
    #[getter]
    fn largest(&self) -> u32 {
        self.0.largest()
    }

    /// Return how many bundles of so many accelerators fit, each on one node.
    fn bundles(&self, size: u32) -> u32 {
        self.0.bundles(size)
    }

    /// Take accelerators node by node.
    fn next(&mut self, py: Python<'_>, count: u32) -> Outcome {
        self.outcome(py, count, Fill::Next)
    }

    /// Take accelerators of the first node with room for all of them, else node by node.
    fn packed(&mut self, py: Python<'_>, count: u32) -> Outcome {
        self.outcome(py, count, Fill::Packed)
    }

    /// Take bundles of these sizes in turn, each of the first node with room for it.
    fn in_bundles(&mut self, py: Python<'_>, count: u32, sizes: Vec<u32>) -> Outcome {
        self.outcome(py, count, Fill::Bundles(&sizes))
    }

    /// Take accelerators of the first node with room for all of them, else in whole steps of one of these sizes, each on
    /// one node, which may not come before that of the step before if nodes must be `ascending`; else node by node.
    #[pyo3(signature = (count, sizes, *, ascending))]
    fn in_steps(&mut self, py: Python<'_>, count: u32, sizes: Vec<u32>, ascending: bool) -> Outcome {
        self.outcome(py, count, Fill::Steps { sizes: &sizes, ascending })
    }

    /// Take accelerators in the first of these lists of steps that fits on ascending nodes, else node by node. A list has
    /// times and sizes.
    fn in_lists(&mut self, py: Python<'_>, count: u32, lists: Vec<Vec<(u32, u32)>>) -> Outcome {
        self.outcome(py, count, Fill::Lists(&lists))
    }

    /// Take bundles of these sizes, one after another, each on the first node with room that has no other bundle of this
    /// request. If every node with room has one, return `Short` if `strict`, else take the first node with room.
    #[pyo3(signature = (count, sizes, *, strict))]
    fn spread(&mut self, py: Python<'_>, count: u32, sizes: Vec<u32>, strict: bool) -> Outcome {
        self.outcome(py, count, Fill::Spread { sizes: &sizes, strict })
    }
}
