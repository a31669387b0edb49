//! `best_schedule`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rankplan_core::tune;
use rankplan_core::tune::problem::{Choice, Problem, Shape, Task, Transfer, Tree};

/// Sizes with seconds and memory, seconds to switch, and the components before it as a bit set.
type Component = (Vec<(u32, f64, f64)>, f64, u32);
/// The two components, seconds if they are apart, and seconds if they share accelerators.
type Weights = ([usize; 2], f64, f64);

/// Return the seconds, the units and the schedule of a shape with the lowest cost, `None` if no schedule fits.
///
/// A schedule is `("leaf", component, units)`, `("then", children, switching)` or `("pipe", children)`. Raises `ValueError`
/// for an unknown shape.
#[pyfunction]
#[pyo3(signature = (components, units, batches, stale, capacity, transfers, shape))]
#[expect(clippy::too_many_arguments, reason = "the fields of a problem, which Python passes by name")]
pub fn best_schedule<'py>(
    py: Python<'py>,
    components: Vec<Component>,
    units: u32,
    batches: u32,
    stale: bool,
    capacity: Option<f64>,
    transfers: Vec<Weights>,
    shape: &str,
) -> PyResult<Option<(f64, u32, Bound<'py, PyTuple>)>> {
    let shape = match shape {
        "collocated" => Shape::Collocated,
        "equal" => Shape::Equal,
        "disaggregated" => Shape::Disaggregated,
        "hybrid" => Shape::Hybrid,
        _ => return Err(PyValueError::new_err(format!("unknown shape '{shape}'"))),
    };
    let choice = |(units, seconds, memory)| Choice { units, seconds, memory };
    let task = |(choices, switch, after): Component| Task {
        choices: choices.into_iter().map(choice).collect(),
        switch,
        after,
    };
    let transfer = |(ends, apart, together)| Transfer { ends, apart, together };
    let (tasks, transfers) =
        (components.into_iter().map(task).collect(), transfers.into_iter().map(transfer).collect());
    let problem = Problem { tasks, units, batches, stale, capacity, transfers };
    let found = py.detach(|| tune::solve(&problem, shape));
    found.map(|found| Ok((found.seconds, found.units, tree(py, &found.tree)?))).transpose()
}

fn tree<'py>(py: Python<'py>, node: &Tree) -> PyResult<Bound<'py, PyTuple>> {
    let list = |children: &[Tree]| -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, children.iter().map(|child| tree(py, child)).collect::<PyResult<Vec<_>>>()?)
    };
    match node {
        Tree::Leaf { task, units } => ("leaf", task, units).into_pyobject(py),
        Tree::Then { children, switching } => ("then", list(children)?, switching).into_pyobject(py),
        Tree::Pipe { children } => ("pipe", list(children)?).into_pyobject(py),
    }
}
