//! `Inventory` and `Pool`.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;
use rankplan_core::topology::Counted;
use rankplan_core::{NodeRank, NodeSpec, Selection, assign};

use crate::errors::{refuse, text_of};
use crate::placement::kind_name;
use crate::placements::Placements;
use crate::rank_map::{Packed, RankMap};
use crate::rank_set::RankSet;

/// Node ranks, accelerator type, and the ids of the accelerators of each of these nodes.
pub type SpecState = (RankSet, String, Vec<String>);

/// What each node has.
#[pyclass(frozen, eq, module = "rankplan._core")]
#[derive(PartialEq)]
pub struct Inventory(pub Arc<rankplan_core::Inventory>);

#[pymethods]
impl Inventory {
    /// `entries`: node ranks, accelerator type, and the ids of the accelerators of each of these nodes.
    #[new]
    pub fn new(py: Python<'_>, entries: Vec<SpecState>) -> PyResult<Self> {
        let entries = entries
            .into_iter()
            .map(|(ranks, accelerator_type, accelerator_ids)| (ranks.0, NodeSpec { accelerator_type, accelerator_ids }))
            .collect();
        let inventory = rankplan_core::Inventory::new(entries).map_err(|fault| refuse(py, None, vec![fault]))?;
        Ok(Inventory(Arc::new(inventory)))
    }

    /// Number of nodes.
    #[getter]
    fn num_nodes(&self) -> u32 {
        self.0.num_nodes()
    }

    /// All accelerators, counted node by node.
    fn accelerators(&self, py: Python<'_>) -> RankSet {
        RankSet(py.detach(|| self.0.accelerators()))
    }

    /// Accelerators, counted node by node, as local indices by node rank.
    fn by_node(&self, py: Python<'_>, accelerators: &RankSet) -> BTreeMap<u32, RankSet> {
        let found = py.detach(|| self.0.by_node(&accelerators.0));
        found.into_iter().map(|(node, local)| (node.0, RankSet(local))).collect()
    }
}

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
        self.pool.groups().iter().map(|group| (group.label.as_str(), kind_name(&group.kind))).collect()
    }

    /// Whether nodes are counted, and not what they have.
    #[getter]
    fn by_node(&self) -> bool {
        self.pool.by_node()
    }

    /// Read, check and assign a placement text.
    fn place(&self, py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<(RankMap, Placements)> {
        let text: &str = &text_of(text)?;
        let placed = py.detach(|| assign::place(text, &self.pool));
        let (map, table) = placed.map_err(|faults| refuse(py, Some(text), faults))?;
        Ok((RankMap(map), Placements::new(table, self.inventory.clone(), true)))
    }

    /// Assign a rank map, which was read from `text` if that is not empty.
    fn place_map(&self, py: Python<'_>, map: &RankMap, text: &str, isolate: bool) -> PyResult<Placements> {
        let table = py
            .detach(|| assign::place_map(&map.0, text, &self.pool))
            .map_err(|faults| refuse(py, Some(text), faults))?;
        Ok(Placements::new(table, self.inventory.clone(), isolate))
    }

    /// Assign the windows of the packed strategy.
    fn place_packed(&self, py: Python<'_>, packed: &Packed, isolate: bool) -> PyResult<Placements> {
        let table = py.detach(|| packed.0.place(&self.pool)).map_err(|faults| refuse(py, None, faults))?;
        Ok(Placements::new(table, self.inventory.clone(), isolate))
    }

    /// Assign consecutive chunks of resources, in the order written; a chunk may span nodes.
    fn place_chunks(
        &self,
        py: Python<'_>,
        resources: Vec<u32>,
        per_process: u32,
        isolate: bool,
    ) -> PyResult<Placements> {
        let table = py
            .detach(|| assign::place_chunks(&resources, per_process, &self.pool))
            .map_err(|faults| refuse(py, None, faults))?;
        Ok(Placements::new(table, self.inventory.clone(), isolate))
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
