//! `Pool`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;
use rankplan_core::Counted;
use rankplan_core::{NodeRank, Rule, Selection};

use crate::errors::{refuse, text_of};
use crate::inventory::Inventory;
use crate::placements::Placements;
use crate::rank_set::RankSet;
use crate::rules::{Chunks, Packed, RankMap};

/// The resources that a component can be placed on.
#[pyclass(frozen, module = "rankplan._core")]
pub struct Pool {
    pool: rankplan_core::Pool,
    inventory: Arc<rankplan_core::Inventory>,
}

#[pymethods]
impl Pool {
    /// `selections`: label, node ranks, and what is counted: `false` for accelerators or else nodes, `true` for nodes, or a
    /// hardware type and the number of pieces on each node.
    #[new]
    fn new(py: Python<'_>, inventory: &Inventory, selections: Vec<(String, RankSet, Count)>) -> PyResult<Self> {
        let selections: Vec<_> = selections
            .into_iter()
            .map(|(label, nodes, count)| Selection {
                label,
                nodes: nodes.0,
                counted: match count {
                    Count::Hardware(kind, counts) => Counted::Hardware(
                        kind,
                        counts.into_iter().map(|(node, count)| (NodeRank(node), count)).collect(),
                    ),
                    Count::Nodes(true) => Counted::Nodes,
                    Count::Nodes(false) => Counted::AcceleratorsOrNodes,
                },
            })
            .collect();
        let pool =
            rankplan_core::Pool::new(&inventory.0, &selections).map_err(|fault| refuse(py, None, vec![fault]))?;
        Ok(Pool { pool, inventory: inventory.0.clone() })
    }

    fn __len__(&self) -> usize {
        self.pool.len() as usize
    }

    /// Labels of the node groups, and what each counts: `accelerator`, `node` or a hardware type.
    #[getter]
    fn groups(&self) -> Vec<(&str, &str)> {
        self.pool.groups().iter().map(|group| (group.label.as_str(), group.kind.name())).collect()
    }

    /// Whether nodes are counted, and not what they have.
    #[getter]
    fn by_node(&self) -> bool {
        self.pool.by_node()
    }

    /// Read, check and assign a placement text.
    fn place(&self, py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<(RankMap, Placements)> {
        let text: &str = &text_of(text)?;
        let placed = py.detach(|| rankplan_core::place(text, &self.pool));
        let (map, table) = placed.map_err(|faults| refuse(py, Some(text), faults))?;
        Ok((RankMap(map), Placements::new(table, self.inventory.clone(), true)))
    }

    /// Apply a rule: each process gets its resources, and sees its own accelerators only if `isolate`.
    #[pyo3(signature = (rule, isolate = true))]
    fn apply(&self, py: Python<'_>, rule: AnyRule<'_>, isolate: bool) -> PyResult<Placements> {
        let rule = rule.rule();
        let text = if let Rule::Map(map) = rule { map.text() } else { "" };
        let table = py
            .detach(|| rankplan_core::apply(rule, &self.pool))
            .map_err(|faults| refuse(py, Some(text).filter(|text| !text.is_empty()), faults))?;
        Ok(Placements::new(table, self.inventory.clone(), isolate))
    }

    /// Return the resource ranks of each process in this pool, its node where nodes are counted: the inverse of `apply`.
    ///
    /// Raises `PlacementError`, which is a `ValueError`, when a process has a resource that is not in the pool.
    fn ranks_of(&self, py: Python<'_>, placements: &Placements) -> PyResult<Vec<Vec<u32>>> {
        py.detach(|| placements.ranks_in(&self.pool)).map_err(|fault| refuse(py, None, vec![fault]))
    }

    /// Refuse groups that count nodes.
    fn require_hardware(&self, py: Python<'_>) -> PyResult<()> {
        self.pool.require_hardware().map_err(|fault| refuse(py, None, vec![fault]))
    }
}

#[derive(FromPyObject)]
enum Count {
    Hardware(String, Vec<(u32, u32)>),
    #[pyo3(transparent)]
    Nodes(bool),
}

#[derive(FromPyObject)]
enum AnyRule<'py> {
    #[pyo3(transparent)]
    Map(Bound<'py, RankMap>),
    #[pyo3(transparent)]
    Packed(Bound<'py, Packed>),
    #[pyo3(transparent)]
    Chunks(Bound<'py, Chunks>),
}

impl AnyRule<'_> {
    fn rule(&self) -> Rule<'_> {
        match self {
            AnyRule::Map(map) => Rule::Map(&map.get().0),
            AnyRule::Packed(packed) => Rule::Packed(&packed.get().0),
            AnyRule::Chunks(chunks) => Rule::Chunks(&chunks.get().0),
        }
    }
}
