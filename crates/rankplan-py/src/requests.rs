//! `Requests`: the placement groups that a trainer asks Ray for.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};
use rankplan_core::actors::read_actors;
use rankplan_core::amounts::{Amount, Amounts};
use rankplan_core::ids::{MAX_NODES, MAX_PROCESSES};
use rankplan_core::pool_order::{joined, order_of_pools};
use rankplan_core::read::place::Place;
use rankplan_core::read::reader::Reader;
use rankplan_core::requests::{Bundle, Division, Kind, Naming, Row, runs_of};
use rankplan_core::reserving::{Asking, Lack, Resource, lacking};
use rankplan_core::sorting::Unsorted;
use rankplan_core::{GroupNames, NodeOrder, NodeRun, NodeRuns};

use crate::free::Taken;
use crate::index::Index;
use crate::inventory::{Inventory, node_order};
use crate::pickling::Reduced;
use crate::placements::Placements;
use crate::rank_set::RankSet;
use crate::value::value_of;

/// The placement groups that a trainer asks Ray for, in order: a sequence of `rankplan.Request`, each of which is made when
/// it is read.
#[pyclass(frozen, sequence, module = "rankplan._core")]
#[derive(Clone, Default)]
pub struct Requests(pub Arc<rankplan_core::Requests>);

/// A placement group that the trainer asks Ray for. Its bundles are listed when they are read.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Request(Row);

/// The arguments of a request.
type RequestState = (RequestFields<Option<&'static str>>, Vec<AmountsState>);

/// Component, name, accelerators and nodes of the bundles, strategy, optional, order.
type RequestFields<O> = (String, Option<String>, Vec<u32>, Vec<u32>, Option<String>, bool, O);

/// What a bundle reserves besides accelerators: CPUs, MiB of memory, custom resources by name.
type AmountsState = (Option<f64>, Option<u64>, Vec<(String, f64)>);

/// Equal bundles: how many there are, the accelerators of each, and what else each reserves.
type BundlesState = (u32, u32, AmountsState);

/// Something that cannot be reserved: what asks for it (a kind and a name), bundles and for how many there is room, the
/// resource, how much is needed and present, nodes by what they have and would need, and whether nothing can help.
type LackState = ((&'static str, String), Option<(u32, u32)>, String, f64, f64, Vec<(f64, f64, RankSet)>, bool);

/// Names of groups: none, one for all, or a number between two texts.
type Names = Option<(String, Option<u32>, String)>;

/// Equal groups: component, strategy, optional, order, bundles, names, number of groups, and nodes as
/// (first node, nodes, bundles of each).
type RowState = (String, Option<String>, bool, Option<String>, Vec<BundlesState>, Names, u32, Vec<(u32, u32, u32)>);

/// A pool that was not sorted: component, order, nodes as they are, nodes as sorted, whether they are exchanged.
type UnsortedState = (String, &'static str, Vec<u32>, Vec<u32>, bool);

fn amounts_of((cpus, memory, custom): AmountsState) -> Amounts {
    let custom = custom.into_iter().map(|(name, amount)| (name, Amount::new(amount))).collect();
    Amounts { cpus: cpus.map(Amount::new), memory, custom }
}

fn amounts_state(amounts: &Amounts) -> AmountsState {
    let custom = amounts.custom.iter().map(|(name, amount)| (name.clone(), amount.number())).collect();
    (amounts.cpus.map(Amount::number), amounts.memory, custom)
}

/// Bundles of these sizes, which reserve these amounts; without any, nothing else is known of them.
fn bundles_of(sizes: Vec<u32>, amounts: Vec<AmountsState>) -> PyResult<Vec<Bundle>> {
    if amounts.is_empty() {
        return Ok(sizes.into_iter().map(Bundle::from).collect());
    }
    if amounts.len() != sizes.len() {
        return Err(PyValueError::new_err(format!("{} bundles, but amounts of {}", sizes.len(), amounts.len())));
    }
    let amounts = amounts.into_iter().map(amounts_of);
    Ok(sizes.into_iter().zip(amounts).map(|(accelerators, amounts)| Bundle { accelerators, amounts }).collect())
}

fn lack_state(lack: Lack) -> LackState {
    let is_final = lack.is_final();
    let (kind, name, room) = match lack.asking {
        Asking::Bundle(name) => ("bundle", name, None),
        Asking::Group(name) => ("group", name, None),
        Asking::Bundles(name, count, room) => ("bundles", name, Some((count, room))),
        Asking::Actor(name) => ("actor", name, None),
        Asking::All => ("all", String::new(), None),
        Asking::OnNodes => ("nodes", String::new(), None),
        Asking::Beside(name) => ("beside", name, None),
        Asking::OnTheirNodes { name, .. } => ("there", name, None),
    };
    let number = |units| lack.resource.number(units);
    let nodes = lack
        .nodes
        .iter()
        .map(|(&(present, needed), nodes)| (number(present), number(needed), RankSet(nodes.iter().copied().collect())));
    let resource = match &lack.resource {
        Resource::Cpus => "CPU".to_owned(),
        Resource::Memory => "memory".to_owned(),
        Resource::Custom(name) => name.clone(),
    };
    ((kind, name), room, resource, number(lack.needed), number(lack.present), nodes.collect(), is_final)
}

fn order_of(name: Option<String>) -> PyResult<Option<NodeOrder>> {
    name.map(|name| node_order(&name)).transpose()
}

impl Request {
    fn order(&self) -> Option<&'static str> {
        self.0.kind.order.map(NodeOrder::name)
    }

    fn state(&self) -> RequestState {
        let Kind { component, strategy, optional, .. } = self.0.kind.clone();
        let sizes = self.0.kind.sizes().collect();
        let nodes = self.0.nodes.iter().map(|node| node.0).collect();
        let amounts = self.0.kind.each().map(|bundle| amounts_state(&bundle.amounts)).collect();
        ((component, self.name(), sizes, nodes, strategy, optional, self.order()), amounts)
    }

    fn states(&self, stated: impl Fn(&Amounts) -> bool) -> bool {
        self.0.kind.bundles.iter().any(|run| stated(&run.each.amounts))
    }
}

#[pymethods]
impl Request {
    #[new]
    #[pyo3(signature = (
        component, name, accelerators, nodes, strategy = Some("PACK".to_owned()), optional = false, order = None,
        *, amounts = Vec::new()
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        component: String,
        name: Option<String>,
        accelerators: Vec<u32>,
        nodes: Vec<u32>,
        strategy: Option<String>,
        optional: bool,
        order: Option<String>,
        amounts: Vec<AmountsState>,
    ) -> PyResult<Self> {
        let bundles = runs_of(bundles_of(accelerators, amounts)?.into_iter().map(|bundle| (1, bundle)));
        let mut runs = NodeRuns::default();
        for node in nodes {
            runs.push(node, 1);
        }
        let kind = Kind { component, strategy, optional, order: order_of(order)?, bundles };
        Ok(Request(Row { kind, names: name.map(GroupNames::Same), groups: 1, nodes: runs }))
    }

    /// Restore a request from `__reduce__`.
    #[staticmethod]
    fn _restore(fields: RequestFields<Option<String>>, amounts: Vec<AmountsState>) -> PyResult<Self> {
        let (component, name, sizes, nodes, strategy, optional, order) = fields;
        Self::new(component, name, sizes, nodes, strategy, optional, order, amounts)
    }

    /// The first component on it, empty if none is.
    #[getter]
    fn component(&self) -> &str {
        &self.0.kind.component
    }

    /// A regular expression that matches the whole name of the group; `None` for a group without a name.
    #[getter]
    fn name(&self) -> Option<String> {
        self.0.names.as_ref().map(|names| names.get(0))
    }

    /// The number of accelerators of each bundle.
    #[getter]
    fn accelerators<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.kind.sizes().collect::<Vec<_>>())
    }

    /// The CPUs that each bundle reserves; `None` for an unknown number.
    #[getter]
    fn cpus<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.kind.each().map(|bundle| bundle.amounts.cpus.map(Amount::number)).collect::<Vec<_>>())
    }

    /// The MiB of host memory that each bundle reserves; `None` if it states none.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.kind.each().map(|bundle| bundle.amounts.memory).collect::<Vec<_>>())
    }

    /// The custom resources that each bundle reserves, by name.
    #[getter]
    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let each = |bundle: &Bundle| {
            let resources = PyDict::new(py);
            for (name, amount) in bundle.amounts.custom.iter() {
                resources.set_item(name, amount.number())?;
            }
            Ok(resources)
        };
        PyTuple::new(py, self.0.kind.each().map(each).collect::<PyResult<Vec<_>>>()?)
    }

    /// The node rank of each bundle.
    #[getter]
    fn nodes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.nodes.iter().map(|node| node.0).collect::<Vec<_>>())
    }

    /// Ray's strategy; `None` for actors without a group, one for each entry.
    #[getter]
    fn strategy(&self) -> Option<&str> {
        self.0.kind.strategy.as_deref()
    }

    /// Whether the request may never come; it has no nodes then.
    #[getter]
    fn optional(&self) -> bool {
        self.0.kind.optional
    }

    /// What the trainer then sorts the nodes of its pool by, if it does: see `Requests.pools`.
    #[getter(order)]
    fn order_name(&self) -> Option<&'static str> {
        self.order()
    }

    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<String> {
        let this = slf.get();
        let amounts = [
            ("cpus", this.states(|amounts| amounts.cpus.is_some())),
            ("memory", this.states(|amounts| amounts.memory.is_some())),
            ("resources", this.states(|amounts| !amounts.custom.is_empty())),
        ];
        let amounts = amounts.into_iter().filter_map(|(key, stated)| stated.then_some(key));
        let keys = ["component", "name", "accelerators", "nodes", "strategy", "optional", "order"];
        let keys = keys.into_iter().chain(amounts);
        let part = |key| Ok(format!("{key}={}", slf.getattr(key)?.repr()?));
        Ok(format!("Request({})", keys.map(part).collect::<PyResult<Vec<_>>>()?.join(", ")))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, RequestState> {
        Ok((slf.get_type().getattr("_restore")?, slf.get().state()))
    }
}

impl Requests {
    fn new(requests: rankplan_core::Requests) -> Self {
        Requests(Arc::new(requests))
    }

    fn item<'py>(&self, py: Python<'py>, number: u32) -> PyResult<Bound<'py, PyAny>> {
        let (row, group) = self.0.get(number).ok_or_else(|| PyIndexError::new_err("unknown request"))?;
        let names = row.names.as_ref().map(|names| GroupNames::Same(names.get(group)));
        let one = Row { kind: row.kind.clone(), names, groups: 1, nodes: row.nodes_of(group) };
        Ok(Bound::new(py, Request(one))?.into_any())
    }

    fn state(row: &Row) -> RowState {
        let names = row.names.as_ref().map(|names| match names {
            GroupNames::Same(name) => (name.clone(), None, String::new()),
            GroupNames::Numbered { before, first, after } => (before.clone(), Some(*first), after.clone()),
        });
        let nodes = row.nodes.runs().iter().map(|run| (run.first, run.nodes, run.each)).collect();
        let Kind { component, strategy, optional, order, bundles } = row.kind.clone();
        let order = order.map(|order| order.name().to_owned());
        let bundle = |run: &rankplan_core::requests::Bundles| {
            (run.times, run.each.accelerators, amounts_state(&run.each.amounts))
        };
        let bundles = bundles.iter().map(bundle).collect();
        (component, strategy, optional, order, bundles, names, row.groups, nodes)
    }
}

#[pymethods]
impl Requests {
    /// The requests of an iterable.
    #[new]
    #[pyo3(signature = (requests = None, /))]
    fn from_items(requests: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(requests) = requests else { return Ok(Requests::default()) };
        if let Ok(known) = requests.cast::<Requests>() {
            return Ok(known.get().clone());
        }
        let mut found = rankplan_core::Requests::default();
        for request in requests.try_iter()? {
            found.push(request?.cast::<Request>()?.get().0.clone());
        }
        Ok(Requests::new(found))
    }

    /// Return the groups on these accelerators. `bundles` are the sizes of the bundles of a group, in turn until it is full.
    /// Without `per_group`, all are one group of this name; otherwise a group has so many accelerators, and its number is at
    /// the end of its name. `pools` are the text between the number of a pool, which is after `name`, and that of a group in
    /// it, and how many groups a pool has. `amounts` are what each of `bundles` reserves besides. Raises `ValueError` for an unknown order.
    #[staticmethod]
    #[pyo3(signature = (
        inventory, component, taken, bundles, per_group = None, *, name = None, pools = None, strategy = None, order = None,
        amounts = Vec::new()
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn of(
        py: Python<'_>,
        inventory: &Inventory,
        component: String,
        taken: &Taken,
        bundles: Vec<u32>,
        per_group: Option<u32>,
        name: Option<&str>,
        pools: Option<(String, u32)>,
        strategy: Option<String>,
        order: Option<String>,
        amounts: Vec<AmountsState>,
    ) -> PyResult<Self> {
        let bundles = bundles_of(bundles, amounts)?;
        let kind = Kind { component, strategy, optional: false, order: order_of(order)?, bundles: Vec::new() };
        let naming = match (name, &pools) {
            (None, _) => Naming::Unnamed,
            (Some(name), Some((middle, groups))) => Naming::Pools(name, middle, *groups),
            (Some(name), None) if per_group.is_some() => Naming::Numbered(name),
            (Some(name), None) => Naming::Same(name),
        };
        let division = Division { bundles: &bundles, per_group };
        let found = py.detach(|| rankplan_core::Requests::of(&inventory.0, &taken.0, &kind, division, naming));
        Ok(Requests::new(found))
    }

    /// Return the requests of these rows: the inverse of `rows`.
    #[staticmethod]
    fn of_rows(rows: Vec<RowState>) -> PyResult<Self> {
        let mut found = rankplan_core::Requests::default();
        for (component, strategy, optional, order, bundles, names, groups, nodes) in rows {
            let names = names.map(|(before, first, after)| match first {
                None => GroupNames::Same(before),
                Some(first) => GroupNames::Numbered { before, first, after },
            });
            let bundles =
                runs_of(bundles.into_iter().map(|(times, accelerators, amounts)| {
                    (times, Bundle { accelerators, amounts: amounts_of(amounts) })
                }));
            let kind = Kind { component, strategy, optional, order: order_of(order)?, bundles };
            let mut runs = NodeRuns::default();
            let few = |numbers: &mut dyn Iterator<Item = (u32, u32)>| {
                let total: u64 = numbers.map(|(times, each)| u64::from(times) * u64::from(each)).sum();
                total <= u64::from(MAX_PROCESSES)
            };
            let mut bundles = kind.bundles.iter().map(|run| (run.times, groups));
            if !few(&mut bundles) || !few(&mut nodes.iter().map(|&(_, nodes, each)| (nodes, each))) {
                return Err(PyValueError::new_err("a row has more bundles than a plan can have processes"));
            }
            for (first, nodes, each) in nodes {
                if first >= MAX_NODES {
                    return Err(PyValueError::new_err(format!("node {first} is out of range")));
                }
                runs.push_run(NodeRun { first, nodes, each });
            }
            found.push(Row { kind, names, groups, nodes: runs });
        }
        Ok(Requests::new(found))
    }

    /// Equal groups in a row: component, strategy, optional, order, bundles as (times, size, amounts), names, number of groups,
    /// and nodes as (first node, nodes, bundles of each). Names are `None`, a text with `None` for all groups, or the text before
    /// the number of the first group, this number, which counts up, and the text after it.
    #[getter]
    fn rows(&self) -> Vec<RowState> {
        self.0.rows().iter().map(Self::state).collect()
    }

    /// Return what of these requests and of a trainer's other actors (plain values) cannot be reserved on the nodes of an
    /// inventory, without these accelerators and nodes. `processes` are the nodes of the processes of components, as
    /// (first node, nodes, processes of each).
    fn lacking(
        &self,
        py: Python<'_>,
        inventory: &Inventory,
        actors: &Bound<'_, PyAny>,
        processes: BTreeMap<String, Vec<(u32, u32, u32)>>,
        excluded: &RankSet,
        unused: &RankSet,
    ) -> PyResult<Vec<LackState>> {
        let actors = read_actors(&mut Reader::new(None), &value_of(actors)?, &Place::WHOLE);
        let mut on: BTreeMap<String, NodeRuns> = BTreeMap::new();
        for (name, stretches) in processes {
            let runs = on.entry(name).or_default();
            stretches.into_iter().for_each(|(first, nodes, each)| runs.push_run(NodeRun { first, nodes, each }));
        }
        let lacks = py.detach(|| lacking(&self.0, &actors, &on, &inventory.0, &excluded.0, &unused.0));
        Ok(lacks.into_iter().map(lack_state).collect())
    }

    /// Return what each trainer sorts the nodes of a pool by, and the numbers of the requests of the pool.
    fn pools(&self) -> Vec<(&'static str, RankSet)> {
        let numbers = |requests: Vec<std::ops::Range<u32>>| RankSet(requests.into_iter().flatten().collect());
        self.0.pools().into_iter().map(|pool| (pool.order.name(), numbers(pool.requests))).collect()
    }

    /// Return the node that each node rank should have for every pool to be in its trainer's order; `None` if all are; a
    /// pool counts as in order if the order is unknown. `ids` are Ray's ids of the nodes. With `together`, all pools are sorted
    /// as one.
    #[pyo3(signature = (inventory, ids, *, together = false))]
    fn order_of_pools(
        &self,
        py: Python<'_>,
        inventory: &Inventory,
        ids: Vec<String>,
        together: bool,
    ) -> Option<Vec<u32>> {
        py.detach(|| order_of_pools(&self.0, &inventory.0, &ids, together))
    }

    /// Return the requests with the nodes of their pools as the trainer sorts them. `ids` are Ray's ids of the nodes; only
    /// orders in `exchangeable` may exchange nodes. `components` have the processes on them.
    fn sorting(
        &self,
        py: Python<'_>,
        inventory: &Inventory,
        ids: Vec<String>,
        components: BTreeMap<String, Bound<'_, Placements>>,
        exchangeable: Vec<String>,
    ) -> PyResult<Sorting> {
        let exchangeable = exchangeable.iter().map(|order| node_order(order)).collect::<PyResult<Vec<_>>>()?;
        let asks = self.0.rows().iter().filter(|row| row.kind.order.is_some_and(|order| exchangeable.contains(&order)));
        let needed: Vec<&str> = asks.map(|row| row.kind.component.as_str()).collect();
        let placed = components.iter().filter(|(name, _)| needed.contains(&name.as_str()));
        let owned = placed.filter_map(|(name, rows)| Some((name.clone(), rows.get().all_taken()?))).collect();
        let sorting = py.detach(|| {
            let may_exchange = |order| exchangeable.contains(&order);
            rankplan_core::Sorting::of(&self.0, &inventory.0, &ids, &owned, may_exchange)
        });
        Ok(Sorting(sorting))
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let len = self.0.len();
        if let Ok(slice) = index.cast::<PySlice>() {
            let indices = slice.indices(len as isize)?;
            let mut part = rankplan_core::Requests::default();
            if indices.step == 1 {
                part = self.0.slice(indices.start as u32..indices.stop.max(indices.start) as u32);
            } else {
                for at in 0..indices.slicelength as isize {
                    let number = (indices.start + at * indices.step) as u32;
                    part.extend(&self.0.slice(number..number + 1));
                }
            }
            return Ok(Bound::new(py, Requests::new(part))?.into_any());
        }
        let position: Index = index.extract()?;
        match position.of(len as usize) {
            Some(at) => self.item(py, at as u32),
            None => Err(PyIndexError::new_err(format!("index {} is out of range for {len} requests", position.0))),
        }
    }

    fn __iter__(&self) -> RequestIterator {
        RequestIterator { requests: self.clone(), number: 0 }
    }

    fn __add__(&self, other: &Requests) -> Self {
        let mut joined = (*self.0).clone();
        joined.extend(&other.0);
        Requests::new(joined)
    }

    /// Requests are equal to any sequence of equal requests.
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if let Ok(other) = other.cast::<Requests>() {
            return Ok((self.0 == other.get().0).into_pyobject(py)?.to_owned().into_any().unbind());
        }
        if !other.is_instance(&py.import("collections.abc")?.getattr("Sequence")?)? {
            return Ok(py.NotImplemented());
        }
        let mut same = other.len()? == self.0.len() as usize;
        for (number, item) in (0..self.0.len()).zip(other.try_iter()?) {
            same = same && self.item(py, number)?.eq(item?)?;
            if !same {
                break;
            }
        }
        Ok(same.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __repr__(&self) -> String {
        let (groups, rows) = (self.0.len(), self.0.rows().len());
        format!("<Requests: {groups} group{} in {rows} row{}>", plural(groups as usize), plural(rows))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (Vec<RowState>,)> {
        Ok((slf.get_type().getattr("of_rows")?, (slf.get().rows(),)))
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[pyclass(module = "rankplan._core")]
struct RequestIterator {
    requests: Requests,
    number: u32,
}

#[pymethods]
impl RequestIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.number >= self.requests.0.len() {
            return Ok(None);
        }
        self.number += 1;
        self.requests.item(py, self.number - 1).map(Some)
    }
}

/// Requests with the nodes of their pools as a trainer sorts them, and what changes.
#[pyclass(frozen, module = "rankplan._core")]
pub struct Sorting(rankplan_core::Sorting);

#[pymethods]
impl Sorting {
    /// The requests after all exchanges.
    #[getter]
    fn requests(&self) -> Requests {
        Requests::new(self.0.requests.clone())
    }

    /// The pools that were not sorted: component, order, nodes as they are, nodes as the trainer sorts them, and whether
    /// they are exchanged.
    #[getter]
    fn unsorted(&self) -> Vec<UnsortedState> {
        let state = |pool: &Unsorted| {
            let [here, there] = [&pool.here, &pool.there].map(|nodes| nodes.iter().map(|node| node.0).collect());
            (pool.component.clone(), pool.order.name(), here, there, pool.exchanged)
        };
        self.0.unsorted.iter().map(state).collect()
    }

    /// Return the accelerators of a component's processes in the order of their ranks after all exchanges; `None` if they
    /// keep their places.
    fn exchanged(&self, py: Python<'_>, placements: &Placements) -> Option<Taken> {
        py.detach(|| self.0.exchanged(&placements.all_taken()?)).map(Taken)
    }
}

/// Return the nodes of pools that share a node, and what they are sorted by, as those of one pool; with `together`, those of
/// all pools in the same order. Of pools that share a node and have different orders, those after the first one are left out.
#[pyfunction]
#[pyo3(signature = (pools, *, together = false))]
pub fn joined_pools(
    pools: Vec<(String, Bound<'_, RankSet>)>,
    together: bool,
) -> PyResult<Vec<(&'static str, RankSet)>> {
    let pools = pools.iter().map(|(order, nodes)| Ok((node_order(order)?, nodes.get().0.clone())));
    let joined = joined(pools.collect::<PyResult<Vec<_>>>()?, together);
    Ok(joined.into_iter().map(|(order, nodes)| (order.name(), RankSet(nodes))).collect())
}
