//! `Pool`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;
use rankplan_core::pool::Excluded;
use rankplan_core::{Counted, NodeRank, Rule, Selection};

use crate::errors::{OrRaise, text_of};
use crate::inventory::Inventory;
use crate::placements::Placements;
use crate::rank_set::RankSet;
use crate::rules::{Chunks, Packed, RankMap};
use crate::visibility::Visibility;

/// The resources that a component can use.
#[pyclass(frozen, module = "rankplan._core")]
pub struct Pool {
    pool: rankplan_core::Pool,
    inventory: Arc<rankplan_core::Inventory>,
}

#[pymethods]
impl Pool {
    /// Each selection is a label, node ranks, and what the group counts: `False` for accelerators, or nodes if none has any;
    /// `True` for nodes; or a hardware type with the number of pieces on each node. `excluded`: nodes, and the local indices of
    /// their accelerators that no process may use, `None` for all.
    #[new]
    #[pyo3(signature = (inventory, selections, excluded = Vec::new()))]
    fn new(
        py: Python<'_>,
        inventory: &Inventory,
        selections: Vec<(String, RankSet, Count)>,
        excluded: Vec<(RankSet, Option<RankSet>)>,
    ) -> PyResult<Self> {
        let all = excluded;
        let selection =
            |(label, nodes, count): (_, RankSet, Count)| Selection { label, nodes: nodes.0, counted: count.into() };
        let selections: Vec<_> = selections.into_iter().map(selection).collect();
        let pool = rankplan_core::Pool::new(&inventory.0, &selections).or_raise(py, None)?;
        let excluded = |(nodes, accelerators): (RankSet, Option<RankSet>)| Excluded {
            nodes: nodes.0,
            accelerators: accelerators.map(|local| local.0),
        };
        let pool = pool.without(&all.into_iter().map(excluded).collect::<Vec<_>>());
        Ok(Pool { pool, inventory: inventory.0.clone() })
    }

    fn __len__(&self) -> usize {
        self.pool.len() as usize
    }

    /// Resource ranks that no process may use.
    #[getter]
    fn excluded(&self) -> RankSet {
        RankSet(self.pool.excluded().clone())
    }

    /// Labels of the node groups, and what each counts: `accelerator`, `node` or a hardware type.
    #[getter]
    fn groups(&self) -> Vec<(&str, &str)> {
        self.pool.groups().iter().map(|group| (group.label.as_str(), group.kind.name())).collect()
    }

    /// Whether the pool counts nodes instead of their hardware.
    #[getter]
    fn by_node(&self) -> bool {
        self.pool.by_node()
    }

    /// Read, check and assign a placement text.
    fn place(&self, py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<(RankMap, Placements)> {
        let text: &str = &text_of(text)?;
        let (map, table) = py.detach(|| rankplan_core::place(text, &self.pool)).or_raise(py, Some(text))?;
        Ok((RankMap(map), Placements::new(table, self.inventory.clone(), Visibility::Own)))
    }

    /// Apply a rule; the processes have this visibility. Raises `PlacementError`.
    #[pyo3(signature = (rule, visibility = Visibility::Own))]
    fn apply(&self, py: Python<'_>, rule: AnyRule<'_>, visibility: Visibility) -> PyResult<Placements> {
        let rule = rule.as_core();
        let text = if let Rule::Map(map) = rule { Some(map.text()) } else { None };
        let table = py.detach(|| rankplan_core::apply(rule, &self.pool));
        let table = table.or_raise(py, text.filter(|text| !text.is_empty()))?;
        Ok(Placements::new(table, self.inventory.clone(), visibility))
    }

    /// Return the resource ranks of each process in this pool: the inverse of `apply`. If the pool counts nodes, the rank of
    /// each process's node.
    ///
    /// Raises `PlacementError`, a `ValueError`, if a process has a resource outside the pool.
    fn ranks_of(&self, py: Python<'_>, placements: &Placements) -> PyResult<Vec<Vec<u32>>> {
        py.detach(|| placements.ranks_in(&self.pool)).or_raise(py, None)
    }

    /// Raise `PlacementError` if the pool counts nodes.
    fn require_hardware(&self, py: Python<'_>) -> PyResult<()> {
        self.pool.require_hardware().or_raise(py, None)
    }
}

#[derive(FromPyObject)]
enum Count {
    Hardware(String, Vec<(u32, u32)>),
    #[pyo3(transparent)]
    Nodes(bool),
}

impl From<Count> for Counted {
    fn from(count: Count) -> Self {
        match count {
            Count::Hardware(kind, counts) => {
                Counted::Hardware(kind, counts.into_iter().map(|(node, count)| (NodeRank(node), count)).collect())
            }
            Count::Nodes(true) => Counted::Nodes,
            Count::Nodes(false) => Counted::AcceleratorsOrNodes,
        }
    }
}

#[derive(FromPyObject)]
pub enum AnyRule<'py> {
    #[pyo3(transparent)]
    Map(Bound<'py, RankMap>),
    #[pyo3(transparent)]
    Packed(Bound<'py, Packed>),
    #[pyo3(transparent)]
    Chunks(Bound<'py, Chunks>),
}

impl AnyRule<'_> {
    pub fn as_core(&self) -> Rule<'_> {
        match self {
            AnyRule::Map(map) => Rule::Map(&map.get().0),
            AnyRule::Packed(packed) => Rule::Packed(&packed.get().0),
            AnyRule::Chunks(chunks) => Rule::Chunks(&chunks.get().0),
        }
    }
}
