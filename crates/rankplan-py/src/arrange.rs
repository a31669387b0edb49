//! `Hierarchy`, `Problem` and `Arrangement`: node ranks to nodes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rankplan_core::arrange::demand::{Bond, CLASSES, Demand};
use rankplan_core::arrange::hierarchy::Hierarchy as CoreHierarchy;
use rankplan_core::arrange::objective::MOVED;
use rankplan_core::arrange::segments::{Packing, Want, pack};
use rankplan_core::arrange::{arrange, moved_as_block, room};
use rankplan_core::{Layout as CoreLayout, Slots, Table};

use crate::errors::OrRaise;
use crate::parallel::Layout;
use crate::placements::Placements;
use crate::rank_set::RankSet;

/// The domains of nodes at every level.
#[pyclass(frozen, eq, module = "rankplan._core")]
#[derive(PartialEq)]
pub struct Hierarchy(CoreHierarchy);

#[pymethods]
impl Hierarchy {
    /// Stands for a missing label of a node at a level.
    #[classattr]
    const UNKNOWN: u32 = rankplan_core::arrange::hierarchy::UNKNOWN;

    /// `labels` has, by level and node, the position of the node's label in the order of labels.
    #[new]
    fn new(py: Python<'_>, nodes: u32, labels: Vec<Vec<u32>>) -> PyResult<Self> {
        py.detach(|| CoreHierarchy::new(nodes, &labels)).or_raise(py, None).map(Hierarchy)
    }

    /// The nodes, depth first through the levels.
    #[getter]
    fn order(&self) -> Vec<u32> {
        self.0.order().to_vec()
    }

    /// Number of levels.
    #[getter]
    fn levels(&self) -> usize {
        self.0.levels()
    }

    /// By node, its domain at a level.
    fn at(&self, level: usize) -> PyResult<Vec<u32>> {
        self.known(level)?;
        Ok((0..self.0.nodes()).map(|node| self.0.of(level, node)).collect())
    }

    /// By domain of a level, its number of nodes.
    fn sizes(&self, level: usize) -> PyResult<Vec<u32>> {
        self.known(level)?;
        Ok((0..self.0.count(level)).map(|domain| self.0.size(level, domain)).collect())
    }
}

impl Hierarchy {
    fn known(&self, level: usize) -> PyResult<()> {
        let known = level < self.0.levels();
        known.then_some(()).ok_or_else(|| PyValueError::new_err(format!("level {level} of {}", self.0.levels())))
    }
}

/// Node ranks to place on nodes.
#[pyclass(frozen, module = "rankplan._core")]
pub struct Problem {
    problem: rankplan_core::arrange::objective::Problem,
}

/// A node for every node rank.
#[pyclass(frozen, module = "rankplan._core")]
pub struct Arrangement(rankplan_core::arrange::Arrangement);

#[pymethods]
impl Problem {
    /// `node_classes` has the hardware of each node, `rank_classes` the hardware that each node rank needs, or `None` for one
    /// without processes. `unfit` has nodes with broken accelerators, and the node ranks that need one of these. `parts` are the
    /// rows of the components and, if they state sizes, their groups, which count. `sets` are node
    /// ranks that must be within a domain: level, ranks, and the number of their rule. `preferred` should be within one;
    /// `balanced` should be divided evenly between domains. `caps` are the most node ranks by domain of a level. `pinned` and `old` have the
    /// nodes of node ranks; `old` is empty without an old plan.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "all are keywords in Python")]
    #[pyo3(signature = (domains, *, node_classes, rank_classes, unfit, parts, sets, preferred, balanced, caps, pinned, old, segment))]
    fn new(
        py: Python<'_>,
        domains: &Hierarchy,
        node_classes: Vec<u32>,
        rank_classes: Vec<Option<u32>>,
        unfit: Vec<(u32, RankSet)>,
        parts: Vec<(Bound<'_, Placements>, Option<Bound<'_, Layout>>)>,
        sets: Vec<(usize, Vec<u32>, u32)>,
        preferred: Vec<(usize, Vec<u32>)>,
        balanced: Vec<(usize, Vec<u32>)>,
        caps: Vec<(usize, Vec<u32>)>,
        pinned: Vec<Option<u32>>,
        old: Vec<Option<u32>>,
        segment: u32,
    ) -> PyResult<Self> {
        let ranks = rank_classes.len() as u32;
        let parts: Vec<Part<'_>> = parts
            .iter()
            .map(|(rows, layout)| (rows.get().table(), layout.as_ref().map(|layout| layout.get().parts())))
            .collect();
        if parts.iter().any(|(table, _)| table.cluster_node_rank().iter().any(|&node| node >= ranks)) {
            return Err(PyValueError::new_err("a component is on more node ranks"));
        }
        let plain = |sets: Vec<(usize, Vec<u32>)>| {
            bonds(&domains.0, sets.into_iter().map(|(level, ranks)| (level, ranks, u32::MAX)).collect())
        };
        let (bonds, preferred, balanced) = (bonds(&domains.0, sets)?, plain(preferred)?, plain(balanced)?);
        let mut most = vec![Vec::new(); domains.0.levels()];
        for (level, caps) in caps {
            *most.get_mut(level).ok_or_else(|| PyValueError::new_err("unknown level"))? = caps;
        }
        let demand = py.detach(|| Demand::of(ranks, &parts));
        let problem = rankplan_core::arrange::objective::Problem {
            domains: domains.0.clone(),
            node_class: node_classes,
            rank_class: rank_classes,
            unfit: unfit.into_iter().map(|(node, ranks)| (node, ranks.0)).collect(),
            demand,
            bonds,
            preferred,
            balanced,
            caps: most,
            pinned,
            old,
            segment,
        };
        Ok(Problem { problem })
    }

    /// Solve the problem. Raises `ValueError` with `(class, needed, found)` of each class of hardware of which there are too few.
    fn solve(&self, py: Python<'_>) -> PyResult<Arrangement> {
        py.detach(|| arrange(&self.problem)).map(Arrangement).map_err(|short| {
            let short: Vec<_> = short.into_iter().map(|short| (short.class, short.needed, short.found)).collect();
            PyValueError::new_err((short,))
        })
    }

    /// The arrangement in which the smallest set that this one tears moves as a whole, if one exists.
    fn moved_as_block(&self, py: Python<'_>, arrangement: &Arrangement) -> Option<Arrangement> {
        py.detach(|| moved_as_block(&self.problem, &arrangement.0)).map(Arrangement)
    }

    /// By level and domain, the nodes that can be used, if only whole units of rules of one size are used and `whole`.
    #[pyo3(signature = (*, whole))]
    fn room(&self, py: Python<'_>, whole: bool) -> Vec<Vec<u32>> {
        py.detach(|| room(&self.problem, whole))
    }

    /// The cost of any arrangement: a list compared from its first number on.
    fn cost(&self, py: Python<'_>, nodes: Vec<Option<u32>>) -> Vec<i64> {
        py.detach(|| self.problem.cost(&nodes))
    }

    /// By level, the number of groups that cross a domain: tensor, context and expert-tensor; expert; data; pipeline.
    fn crossings(&self, py: Python<'_>, nodes: Vec<Option<u32>>) -> Vec<Vec<i64>> {
        let cost = self.cost(py, nodes);
        let of = |level| (0..CLASSES.len()).map(|class| cost[self.problem.crossings_at(level, class)]).collect();
        (0..self.problem.domains.levels()).map(of).collect()
    }

    /// The sets that must be within a domain and are not: number of the rule, node ranks.
    fn broken(&self, arrangement: &Arrangement) -> Vec<(u32, Vec<u32>)> {
        let bond = |&index: &u32| {
            let bond = &self.problem.bonds[index as usize];
            (bond.source, bond.ranks.to_vec())
        };
        arrangement.0.broken.iter().map(bond).collect()
    }
}

fn bonds(domains: &CoreHierarchy, sets: Vec<(usize, Vec<u32>, u32)>) -> PyResult<Vec<Bond>> {
    if sets.iter().any(|&(level, ..)| level >= domains.levels()) {
        return Err(PyValueError::new_err("unknown level"));
    }
    Ok(sets.into_iter().map(|(level, ranks, source)| Bond { level, ranks: ranks.into(), source }).collect())
}

type Part<'a> = (&'a Table, Option<(&'a Slots, &'a CoreLayout)>);

#[pymethods]
impl Arrangement {
    /// By node rank, its node, or `None` for one without processes.
    #[getter]
    fn nodes(&self) -> Vec<Option<u32>> {
        self.0.nodes.clone()
    }

    /// Whether it is proved that no arrangement costs less.
    #[getter]
    fn optimal(&self) -> bool {
        self.0.optimal
    }

    /// Whether it is proved that every arrangement breaks a rule.
    #[getter]
    fn impossible(&self) -> bool {
        self.0.impossible
    }

    /// Whether it breaks no rule.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.cost[0] == 0
    }

    /// Its cost: a list compared from its first number on.
    #[getter]
    fn cost(&self) -> Vec<i64> {
        self.0.cost.clone()
    }

    /// Number of processes on another node than before.
    #[getter]
    fn moved(&self) -> i64 {
        self.0.cost[MOVED]
    }
}

/// Pack segments into domains with this many nodes: each of `wants` is a size and a number of segments. Return the domain of
/// each segment, by want; `None` if no packing exists. Raises `ValueError` if the search ends early.
#[pyfunction]
#[pyo3(signature = (domains, wants, budget = 200_000))]
pub fn pack_segments(
    py: Python<'_>,
    domains: Vec<u32>,
    wants: Vec<(u32, u32)>,
    budget: u32,
) -> PyResult<Option<Vec<Vec<u32>>>> {
    if wants.iter().any(|&(size, _)| size == 0) {
        return Err(PyValueError::new_err("a segment has at least one node"));
    }
    let wants: Vec<_> = wants.into_iter().map(|(size, count)| Want { size, count }).collect();
    match py.detach(|| pack(&domains, &wants, budget)) {
        Packing::Fits(found) => Ok(Some(found)),
        Packing::Impossible => Ok(None),
        Packing::OutOfBudget => Err(PyValueError::new_err(format!("no packing among the first {budget} states"))),
    }
}
