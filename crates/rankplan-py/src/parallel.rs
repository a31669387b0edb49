//! `Layout`, `SlotSets`, `Groups`, `Spans` and `WeightMap`.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyRange, PySlice};
use rankplan_core::arrange::demand::node_sets;
use rankplan_core::groups::unchanged::{Placed, unchanged};
use rankplan_core::groups::weights::Side;
use rankplan_core::{Inventory, Kind, Order, Parallel, ProcessRank, Progression, Slots, Table};

use crate::columns::packed;
use crate::errors::{OrRaise, warnings};
use crate::index::Index;
use crate::placements::Placements;
use crate::rank_set::RankSet;

/// Sizes and order: an object with these attributes.
#[derive(FromPyObject)]
struct Sizes {
    tp: u32,
    cp: u32,
    ep: u32,
    etp: u32,
    pp: u32,
    dp: Option<u32>,
    fsdp: u32,
    order: String,
}

/// The parallel groups of a component.
#[pyclass(frozen, module = "rankplan._core")]
pub struct Layout {
    layout: rankplan_core::Layout,
    slots: Arc<Slots>,
    inventory: Arc<Inventory>,
    table: Arc<Table>,
    by_node: OnceLock<Arc<rankplan_core::SlotSets>>,
}

pub fn named(kind: &str) -> PyResult<Kind> {
    Kind::named(kind).ok_or_else(|| {
        let names = Kind::ALL.map(Kind::name).join(", ");
        PyValueError::new_err(format!("unknown kind of group '{kind}'; the kinds are {names}"))
    })
}

fn range<'py>(py: Python<'py>, group: Progression) -> PyResult<Bound<'py, PyRange>> {
    let [first, step, end] = [group.first, group.step, group.last() + 1].map(|number| number as isize);
    PyRange::new_with_step(py, first, end, step)
}

#[pymethods]
impl Layout {
    /// The groups of whole components: all processes of `placements`. `parallel` has sizes and an order.
    ///
    /// Raises `PlacementError` when the sizes do not fit the slots.
    #[new]
    fn new(py: Python<'_>, placements: &Placements, parallel: Sizes) -> PyResult<Self> {
        let Sizes { tp, cp, ep, etp, pp, dp, fsdp, order } = parallel;
        let order = Order::parse(&order).or_raise(py, None)?;
        let parallel = Parallel { tp, cp, ep, etp, pp, dp, fsdp, order };
        let slots = py.detach(|| Slots::of(placements.table()));
        let layout = rankplan_core::Layout::new(&parallel, &slots).or_raise(py, None)?;
        let (table, inventory) = (placements.shared_table(), placements.inventory().clone());
        Ok(Layout { layout, slots: Arc::new(slots), inventory, table, by_node: OnceLock::new() })
    }

    /// Number of slots.
    #[getter]
    fn slots(&self) -> u32 {
        self.slots.len()
    }

    /// The noun for this many slots: devices, processes or slots.
    fn noun(&self, count: u32) -> Cow<'static, str> {
        self.slots.noun(count)
    }

    /// The kinds that have a coordinate.
    #[getter]
    fn kinds(&self) -> Vec<&str> {
        self.layout.kinds().map(Kind::name).collect()
    }

    /// Size of the groups of a kind.
    fn size(&self, kind: &str) -> PyResult<u32> {
        Ok(self.layout.size(named(kind)?))
    }

    /// The groups of a kind.
    fn groups(&self, kind: &str) -> PyResult<Groups> {
        Ok(Groups(self.layout.groups(named(kind)?)))
    }

    /// How many groups of a kind stay within a node, or a domain, and how many cross one.
    #[pyo3(signature = (kind, domains = None))]
    fn spans(&self, py: Python<'_>, kind: &str, domains: Option<&Domains>) -> PyResult<Spans> {
        let groups = self.layout.groups(named(kind)?);
        Ok(Spans(py.detach(|| match domains {
            Some(domains) => self.slots.nodes().in_domains(&domains.0).spans(groups),
            None => self.slots.spans(groups),
        })))
    }

    /// The sets of two or more node ranks that groups of a kind are on, each once.
    fn node_sets(&self, py: Python<'_>, kind: &str) -> PyResult<Vec<Vec<u32>>> {
        let kind = named(kind)?;
        Ok(py.detach(|| node_sets(&self.slots, &self.layout, kind)).into_iter().map(Vec::from).collect())
    }

    /// The slots of a group as messages name them: `ranks 4-7`.
    fn named(&self, kind: &str, index: u32) -> PyResult<String> {
        Ok(self.slots.named(self.layout.groups(named(kind)?), index))
    }

    /// The slots of a process.
    fn slots_of<'py>(&self, py: Python<'py>, rank: Index) -> PyResult<Bound<'py, PyRange>> {
        let rank = ProcessRank(rank.within(self.slots.processes(), "rank")?);
        let slots = self.slots.of_process(rank).unwrap_or_default();
        PyRange::new(py, slots.start as isize, slots.end as isize)
    }

    /// The process of a slot.
    fn process_of(&self, slot: Index) -> PyResult<u32> {
        self.known(slot).map(|slot| self.slots.process_of(slot).0)
    }

    /// The node of a slot, and the local index of its accelerator.
    fn place(&self, slot: Index) -> PyResult<(u32, Option<u16>)> {
        let (node, device) = self.slots.place(self.known(slot)?);
        Ok((node.0, device))
    }

    /// The coordinates of a slot by kind.
    fn coordinates<'py>(&self, py: Python<'py>, slot: Index) -> PyResult<Bound<'py, PyDict>> {
        let coordinates = PyDict::new(py);
        for (kind, position) in self.layout.coordinates(self.known(slot)?) {
            coordinates.set_item(kind.name(), position)?;
        }
        Ok(coordinates)
    }

    /// The slots of each node, by its rank.
    fn by_node(&self, py: Python<'_>) -> SlotSets {
        SlotSets(py.detach(|| self.sets_by_node()))
    }

    /// The slots of this many consecutive processes.
    fn by_process(&self, py: Python<'_>, each: u32) -> SlotSets {
        SlotSets(Arc::new(py.detach(|| rankplan_core::SlotSets::by_process(&self.slots, each))))
    }

    /// The slots with equal coordinates of these kinds, in the order of their first slots.
    fn by_coordinates(&self, py: Python<'_>, kinds: Vec<String>) -> PyResult<SlotSets> {
        let kinds = kinds.iter().map(|kind| named(kind)).collect::<PyResult<Vec<_>>>()?;
        Ok(SlotSets(Arc::new(py.detach(|| rankplan_core::SlotSets::by_coordinates(&self.layout, &kinds)))))
    }

    /// The slots of data groups that go together: `shards` consecutive ones, and those that a process has in common.
    fn by_data(&self, py: Python<'_>, shards: u32) -> SlotSets {
        SlotSets(Arc::new(py.detach(|| rankplan_core::SlotSets::by_data(&self.layout, &self.slots, shards))))
    }

    /// The slots that `after` has with the same number, process, coordinates, node, devices and node group, on nodes all of
    /// whose slots do. `nodes` has the node rank of `after` by node rank, or `None`.
    fn unchanged(&self, py: Python<'_>, after: &Layout, nodes: Vec<Option<u32>>) -> RankSet {
        RankSet(py.detach(|| {
            let (old, new) = (self.sets_by_node(), after.sets_by_node());
            unchanged(self.placed(&old), after.placed(&new), &nodes)
        }))
    }

    /// The dimensions of a mesh of all slots and their sizes, outermost first.
    fn mesh(&self) -> Vec<(&str, u32)> {
        self.layout.mesh().into_iter().map(|(kind, size)| (kind.name(), size)).collect()
    }

    /// The warnings for groups that cross a node or leave their rails; `name` is the name of the component.
    fn warnings<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let found = py.detach(|| {
            let mut found = self.slots.span_warnings(&self.layout, &self.inventory, name);
            found.extend(self.slots.rail_warning(&self.layout, &self.inventory, name));
            found
        });
        warnings(py, found)
    }

    /// The coordinates as NumPy arrays: by kind, shape (slots,); `slot_starts` (processes + 1,) has the slots of each process.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (numpy, columns) = (py.import("numpy")?, PyDict::new(py));
        let set = |name: &str, numbers: &mut dyn ExactSizeIterator<Item = u32>| {
            let bytes = packed(py, numbers.len(), numbers.map(u32::to_le_bytes))?;
            columns.set_item(name, numpy.call_method1("frombuffer", (bytes, "<u4"))?)
        };
        set("slot_starts", &mut (0..self.slots.processes() + 1).map(|rank| self.slots.start_of(rank)))?;
        for kind in self.layout.kinds() {
            let groups = self.layout.groups(kind);
            set(kind.name(), &mut (0..self.slots.len()).map(|slot| groups.position(slot)))?;
        }
        Ok(columns)
    }
}

impl Layout {
    /// The slots and their groups.
    pub fn parts(&self) -> (&Slots, &rankplan_core::Layout) {
        (&self.slots, &self.layout)
    }

    fn sets_by_node(&self) -> Arc<rankplan_core::SlotSets> {
        self.by_node.get_or_init(|| Arc::new(rankplan_core::SlotSets::by_node(&self.slots))).clone()
    }

    fn placed<'a>(&'a self, by_node: &'a rankplan_core::SlotSets) -> Placed<'a> {
        Placed { table: &self.table, inventory: &self.inventory, slots: &self.slots, layout: &self.layout, by_node }
    }

    fn known(&self, slot: Index) -> PyResult<u32> {
        slot.within(self.slots.len(), "slot")
    }
}

/// The slots of a component in numbered sets: a sequence of lists of slots.
#[pyclass(frozen, eq, sequence, module = "rankplan._core")]
#[derive(PartialEq)]
pub struct SlotSets(Arc<rankplan_core::SlotSets>);

#[pymethods]
impl SlotSets {
    /// Whether all sets have equally many slots.
    #[getter]
    fn even(&self) -> bool {
        self.0.are_even()
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __getitem__(&self, set: Index) -> PyResult<Vec<u32>> {
        let at = set.of(self.__len__());
        let at = at.ok_or_else(|| PyIndexError::new_err(format!("set {} of {}", set.0, self.__len__())))?;
        Ok(self.0.get(at as u32).to_vec())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let sets: Vec<_> = (0..self.0.len()).map(|set| self.0.get(set).to_vec()).collect();
        PyList::new(py, sets)?.try_iter()
    }

    /// Return the number of slots of a set, 0 for a set that does not exist.
    fn size(&self, set: u32) -> usize {
        self.0.get(set).len()
    }

    /// Return the set of a slot.
    fn of(&self, slot: Index) -> PyResult<u32> {
        let slot = slot.within(self.0.slots(), "slot")?;
        self.0.of(slot).ok_or_else(|| PyIndexError::new_err("unknown slot"))
    }

    fn __repr__(&self) -> String {
        format!("<SlotSets: {} slots in {} sets>", self.0.slots(), self.0.len())
    }
}

/// The groups of one kind: a sequence of ranges of slots. Nothing is stored per group.
#[pyclass(frozen, eq, hash, sequence, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Groups(rankplan_core::Groups);

#[pymethods]
impl Groups {
    /// Number of slots of a group.
    #[getter]
    fn size(&self) -> u32 {
        self.0.size()
    }

    /// Distance between two slots of a group.
    #[getter]
    fn step(&self) -> u32 {
        self.0.step()
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let len = self.0.len() as isize;
        if let Ok(slice) = key.cast::<PySlice>() {
            let part = slice.indices(len)?;
            let indices = (0..part.slicelength as isize).map(|index| part.start + index * part.step);
            let groups = indices
                .filter_map(|index| self.0.get(index as u32))
                .map(|group| range(py, group))
                .collect::<PyResult<Vec<_>>>()?;
            return Ok(groups.into_pyobject(py)?.into_any());
        }
        let index: Index = key.extract()?;
        let group = index.of(len as usize).and_then(|index| self.0.get(index as u32));
        Ok(range(py, group.ok_or_else(|| PyIndexError::new_err(format!("group {} of {len}", index.0)))?)?.into_any())
    }

    fn __contains__(&self, group: &Bound<'_, PyAny>) -> bool {
        self.position_of(group).is_some()
    }

    /// Return the index of a group. Raises `ValueError` for anything else.
    fn index(&self, group: &Bound<'_, PyAny>) -> PyResult<u32> {
        self.position_of(group).ok_or_else(|| PyValueError::new_err("this is not one of the groups"))
    }

    /// Return 1 for a group, else 0.
    fn count(&self, group: &Bound<'_, PyAny>) -> usize {
        usize::from(self.__contains__(group))
    }

    /// Return the index of the group of a slot.
    fn of(&self, slot: Index) -> PyResult<u32> {
        slot.within(self.0.len() * self.0.size(), "slot").map(|slot| self.0.index_of(slot))
    }

    fn __repr__(&self) -> String {
        format!("<Groups: {} of {} slots, step {}>", self.0.len(), self.0.size(), self.0.step())
    }
}

impl Groups {
    fn position_of(&self, group: &Bound<'_, PyAny>) -> Option<u32> {
        let first: u32 = group.cast::<PyRange>().ok()?.get_item(0).ok()?.extract().ok()?;
        let index = self.0.index_of(first);
        let found = range(group.py(), self.0.get(index)?).ok()?;
        found.eq(group).ok()?.then_some(index)
    }
}

/// The domains of one level of the network.
#[pyclass(frozen, eq, module = "rankplan._core")]
#[derive(PartialEq)]
pub struct Domains(rankplan_core::Domains);

#[pymethods]
impl Domains {
    /// `ids` is the number of each node's domain, by node rank, as native 32-bit numbers.
    #[new]
    fn new(ids: &Bound<'_, PyBytes>) -> Self {
        let (words, _) = ids.as_bytes().as_chunks::<4>();
        Domains(rankplan_core::Domains::new(words.iter().map(|word| u32::from_ne_bytes(*word))))
    }
}

/// How many groups of one kind stay within a node, or a domain, and how many cross one.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Spans(rankplan_core::groups::spans::Spans);

#[pymethods]
impl Spans {
    /// Number of groups on one node, or in one domain.
    #[getter]
    fn within(&self) -> u32 {
        self.0.within
    }

    /// Number of groups on several.
    #[getter]
    fn crossing(&self) -> u32 {
        self.0.crossing
    }

    /// Index of the first group on several, or `None`.
    #[getter]
    fn first_crossing(&self) -> Option<u32> {
        self.0.first_crossing
    }

    fn __repr__(&self) -> String {
        format!("Spans(within={}, crossing={})", self.0.within, self.0.crossing)
    }
}

/// For every slot of a sender, the slots of a receiver that get its weights.
#[pyclass(frozen, module = "rankplan._core")]
pub struct WeightMap(rankplan_core::WeightMap);

#[pymethods]
impl WeightMap {
    /// `sender` and `receiver`: the name of each component and its layout. Raises `PlacementError` (`no-weight-sender`).
    #[new]
    fn new(py: Python<'_>, sender: (String, Py<Layout>), receiver: (String, Py<Layout>)) -> PyResult<Self> {
        let map = py.detach(|| {
            let [sender, receiver] = [&sender, &receiver].map(|(name, layout)| {
                let Layout { layout, slots, .. } = layout.get();
                Side { name, slots, layout }
            });
            rankplan_core::WeightMap::new(sender, receiver)
        });
        map.map(WeightMap).or_raise(py, None)
    }

    /// Number of slots of the sender, and of the receiver.
    #[getter]
    fn shape(&self) -> (u32, u32) {
        (self.0.senders(), self.0.receivers())
    }

    /// Return the receivers of a sender, ascending.
    fn receivers_of(&self, sender: Index) -> PyResult<Vec<u32>> {
        sender.within(self.0.senders(), "sender").map(|sender| self.0.receivers_of(sender))
    }

    /// Return the sender of a receiver.
    fn sender_of(&self, receiver: Index) -> PyResult<u32> {
        let sender = self.0.sender_of(receiver.within(self.0.receivers(), "receiver")?);
        sender.ok_or_else(|| PyIndexError::new_err("unknown receiver"))
    }
}
