//! `PlanFile`: the content of the file of a plan, read and written.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString, PyTuple};
use rankplan_core::actors::{actors_value, read_actors};
use rankplan_core::cluster_reader;
use rankplan_core::plan_file::{self, Parts};
use rankplan_core::plan_reader::{self, Component, Entry, Rule, Saved};
use rankplan_core::read::parse::parse;
use rankplan_core::read::place::{Part, Place, in_order, position};
use rankplan_core::read::reader::Reader;
use rankplan_core::read::value::Value;

use crate::errors::located;
use crate::inventory::Inventory;
use crate::node::known_names_and_variables;
use crate::pool::AnyRule;
use crate::requests::Requests;
use crate::rules::{Chunks, Packed, RankMap};
use crate::value::{to_python, value_of};

/// The content of the file of a plan.
#[pyclass(frozen, module = "rankplan._core")]
pub struct PlanFile(Value);

/// The parts of a plan that a file states, as far as they have no faults.
#[pyclass(frozen, get_all, module = "rankplan._core")]
pub struct SavedPlan {
    /// The nodes; `None` after faults.
    inventory: Option<Py<Inventory>>,
    /// The levels of the network that the inventory states.
    levels: Option<Vec<String>>,
    /// What is stated of the cluster, as plain values; `None` also after faults.
    cluster: Py<PyAny>,
    /// The name of the placement mode.
    mode: Option<String>,
    /// The dialect of the trainer's config.
    dialect: Option<String>,
    /// Each component: its name, what it keeps in memory as a plain value, and a tuple of its node groups, its rule, its other
    /// settings by name, and the name, the node groups and the rule of each component beside it; `None` after faults.
    components: Py<PyList>,
    /// The requests.
    requests: Py<Requests>,
    /// What the trainer's actors outside these groups hold, as plain values.
    actors: Py<PyAny>,
    /// Names of groups that must be regular expressions, each with the index and the key of its entry.
    names: Vec<(usize, &'static str, String)>,
    /// What its job states besides, as plain values; `None` also after faults.
    job: Py<PyAny>,
    /// Every fault with its path.
    faults: Vec<(Py<PyTuple>, Py<PyAny>)>,
}

/// Where processes are: node groups, and a rule.
type Placed<'py> = (Vec<String>, AnyRule<'py>);

/// A component to write: its name, its place, its settings as plain values by name, and the components beside it.
type Written<'py> = (String, Placed<'py>, Bound<'py, PyDict>, Vec<(String, Vec<String>, AnyRule<'py>)>);

#[pymethods]
impl PlanFile {
    /// The content of a mapping, or of any other value.
    #[new]
    fn new(content: &Bound<'_, PyAny>) -> PyResult<Self> {
        value_of(content).map(PlanFile)
    }

    /// Return the content of a text, `None` if it is no JSON, too deep, or has characters that are none.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &Bound<'_, PyString>) -> Option<Self> {
        let text = text.to_cow().ok()?;
        py.detach(|| parse(&text)).map(PlanFile)
    }

    /// Return the content of a plan's parts.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the parts of a plan")]
    fn of(
        py: Python<'_>,
        inventory: &Inventory,
        levels: Option<Vec<String>>,
        cluster: &Bound<'_, PyAny>,
        mode: Option<&str>,
        dialect: Option<&str>,
        requests: &Requests,
        actors: &Bound<'_, PyAny>,
        components: Vec<Written<'_>>,
        job: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let placed = |(groups, rule): Placed<'_>| plan_file::placed(groups, rule.as_core().value());
        let component = |(name, place, settings, beside): Written<'_>| {
            let beside = beside.into_iter().map(|(name, groups, rule)| (name, placed((groups, rule)))).collect();
            Ok((name, plan_file::component(placed(place), &value_of(&settings)?, beside)))
        };
        let components = components.into_iter().map(component).collect::<PyResult<_>>()?;
        let (inventory, requests, cluster) = (&*inventory.0, &*requests.0, value_of(cluster)?);
        let (levels, job) = (levels.as_deref(), value_of(job)?);
        let actors = &read_actors(&mut Reader::new(None), &value_of(actors)?, &Place::WHOLE)[..];
        let parts = Parts { inventory, levels, cluster, mode, dialect, requests, actors, job };
        Ok(PlanFile(py.detach(|| plan_file::content(parts, components))))
    }

    /// The version of the plan; `None` if it is none that can be read.
    #[getter]
    fn version(&self) -> Option<i64> {
        plan_reader::known_version(&self.0)
    }

    /// Return the content as plain values.
    fn plain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0)
    }

    /// Return the text of the file. Equal plans give equal texts.
    fn text(&self, py: Python<'_>) -> String {
        py.detach(|| plan_file::text(&self.0))
    }

    /// Return the parts of a plan of a version that can be read, and every fault.
    fn read(&self, py: Python<'_>) -> PyResult<SavedPlan> {
        let names = known_names_and_variables(py)?;
        let version = self.version().unwrap_or(plan_reader::VERSION);
        let Saved { inventory, cluster, mode, dialect, components, requests, actors, job, faults } =
            py.detach(|| plan_reader::read_plan(&self.0, version, &names));
        let (inventory, levels) = inventory.unzip();
        let inventory = inventory.map(|inventory| Py::new(py, Inventory(Arc::new(inventory)))).transpose()?;
        let components = components.into_iter().map(|entry| entry_object(py, entry)).collect::<PyResult<Vec<_>>>()?;
        let faults = located(py, faults)?.into_iter();
        Ok(SavedPlan {
            inventory,
            levels: levels.flatten(),
            cluster: plain(py, cluster)?,
            mode,
            dialect,
            components: PyList::new(py, components)?.unbind(),
            requests: Py::new(py, Requests(Arc::new(requests.requests)))?,
            actors: to_python(py, &actors_value(&actors))?.unbind(),
            names: requests.names,
            job: plain(py, job)?,
            faults: faults.map(|(path, fault)| (path.unbind(), fault.unbind())).collect(),
        })
    }

    /// Return where a path leads, so that faults can be sorted: the index of each of its keys, -1 for a missing one.
    fn position(&self, path: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<i64>> {
        let part = |part: &Bound<'_, PyAny>| match part.is_instance_of::<PyInt>() {
            true => part.extract().map(Part::Index),
            false => part.extract().map(Part::Key),
        };
        Ok(position(&self.0, &path.iter().map(part).collect::<PyResult<Vec<_>>>()?))
    }
}

/// Read what is stated of a cluster. Return it as plain values, or every fault with its path, in the order of the mapping.
#[pyfunction]
pub fn read_cluster<'py>(py: Python<'py>, content: &Bound<'py, PyAny>) -> PyResult<Stated<'py>> {
    let content = value_of(content)?;
    let names = known_names_and_variables(py)?;
    match py.detach(|| cluster_reader::read_stated(&content, &names)) {
        Ok(cluster) => Ok((Some(to_python(py, &cluster)?), Vec::new())),
        Err(faults) => Ok((None, located(py, in_order(faults, &content))?)),
    }
}

/// Plain values, and faults with their paths; without faults, there are values.
type Stated<'py> = (Option<Bound<'py, PyAny>>, Vec<(Bound<'py, PyTuple>, Bound<'py, PyAny>)>);

/// A value as Python has it, `None` without one.
fn plain(py: Python<'_>, value: Option<Value>) -> PyResult<Py<PyAny>> {
    value.map_or_else(|| Ok(py.None()), |value| Ok(to_python(py, &value)?.unbind()))
}

fn rule_object(py: Python<'_>, rule: Rule) -> PyResult<Bound<'_, PyAny>> {
    Ok(match rule {
        Rule::Map(map) => Bound::new(py, RankMap(map))?.into_any(),
        Rule::Chunks(chunks) => Bound::new(py, Chunks(chunks))?.into_any(),
        Rule::Packed(packed) => Bound::new(py, Packed(packed))?.into_any(),
    })
}

fn entry_object<'py>(py: Python<'py>, entry: Entry) -> PyResult<Bound<'py, PyTuple>> {
    let memory = entry.memory.map(|memory| to_python(py, &memory)).transpose()?;
    let component = entry.component.map(|component| component_object(py, component)).transpose()?;
    (entry.name, memory, component).into_pyobject(py)
}

fn component_object<'py>(py: Python<'py>, component: Component) -> PyResult<Bound<'py, PyTuple>> {
    let Component { placed, settings, beside } = component;
    let beside = beside.into_iter().map(|(name, placed)| {
        (name, PyTuple::new(py, placed.node_groups)?, rule_object(py, placed.rule)?).into_pyobject(py)
    });
    let beside = beside.collect::<PyResult<Vec<_>>>()?;
    let groups = PyTuple::new(py, placed.node_groups)?;
    (groups, rule_object(py, placed.rule)?, to_python(py, &settings)?, beside).into_pyobject(py)
}
