//! `RankMap`, `Packed` and `Chunks`: which resources each process uses.

use pyo3::prelude::*;
use pyo3::types::PyString;
use rankplan_core::RankRange;
use rankplan_core::rank_map::Segment;

use crate::errors::{OrRaise, text_of};
use crate::pickling::Reduced;
use crate::rank_set::RankSet;

/// The checked segments of one component.
#[pyclass(frozen, eq, hash, str = "{0}", module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct RankMap(pub rankplan_core::RankMap);

#[pymethods]
impl RankMap {
    /// Read a placement text and check it against a number of resources, if known.
    ///
    /// Raises `PlacementError` with every fault of the text.
    #[staticmethod]
    #[pyo3(signature = (text, num_resources = None))]
    fn parse(py: Python<'_>, text: &Bound<'_, PyString>, num_resources: Option<u32>) -> PyResult<Self> {
        let text: &str = &text_of(text)?;
        py.detach(|| rankplan_core::RankMap::parse(text, num_resources)).or_raise(py, Some(text)).map(RankMap)
    }

    /// Read what `str()` returns: its inverse. Segments may name the same resources. Raises `PlacementError`.
    #[staticmethod]
    fn read(py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<Self> {
        let text: &str = &text_of(text)?;
        py.detach(|| rankplan_core::RankMap::read(text)).or_raise(py, Some(text)).map(RankMap)
    }

    /// Return the map in which each process uses one of these lists of ranks.
    ///
    /// Sorts the ranks of each process, and processes by their first rank. Raises `PlacementError`.
    #[staticmethod]
    fn from_lists(py: Python<'_>, lists: Vec<Vec<u32>>) -> PyResult<Self> {
        rankplan_core::RankMap::from_lists(lists).or_raise(py, None).map(RankMap)
    }

    /// Number of processes.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// All resource ranks in use.
    #[getter]
    fn resources(&self) -> RankSet {
        RankSet(self.0.resources())
    }

    /// The segments: resource ranks and process ranks.
    #[getter]
    fn segments(&self) -> Vec<(RankSet, RankSet)> {
        let processes = |segment: &Segment<'_>| RankRange::counted(segment.first_process.0, segment.processes);
        self.0.segments().map(|segment| (resources_of(&segment), RankSet::of(processes(&segment)))).collect()
    }

    fn __repr__(&self) -> String {
        match self.0.to_string() {
            text if text.len() <= LONGEST => format!("RankMap('{text}')"),
            _ => format!("RankMap(<{} segments>)", self.0.num_segments()),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (String,)> {
        Ok((slf.get_type().getattr("read")?, (slf.get().0.to_string(),)))
    }
}

/// The longest text that a `repr` shows.
const LONGEST: usize = 80;

fn resources_of(segment: &Segment<'_>) -> RankSet {
    RankSet::of(segment.ranges.iter().copied())
}

/// The windows of the packed strategy.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Packed(pub rankplan_core::Packed);

#[pymethods]
impl Packed {
    #[new]
    fn new(py: Python<'_>, start: u32, end: u32, per_process: u32, stride: u32) -> PyResult<Self> {
        rankplan_core::Packed::new(start, end, per_process, stride).or_raise(py, None).map(Packed)
    }

    /// Number of processes.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// All resource ranks in use.
    #[getter]
    fn resources(&self) -> RankSet {
        RankSet::of([self.0.range()])
    }

    /// First resource rank.
    #[getter]
    fn start(&self) -> u32 {
        self.0.range().first()
    }

    /// Last resource rank.
    #[getter]
    fn end(&self) -> u32 {
        self.0.range().last()
    }

    /// Number of resources of each process.
    #[getter]
    fn per_process(&self) -> u32 {
        self.0.per_process()
    }

    /// Distance between two resources of a process.
    #[getter]
    fn stride(&self) -> u32 {
        self.0.stride()
    }

    fn __repr__(&self) -> String {
        let [start, end, per_process, stride] = self.arguments();
        format!("Packed(start={start}, end={end}, per_process={per_process}, stride={stride})")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (u32, u32, u32, u32)> {
        Ok((slf.get_type().into_any(), slf.get().arguments().into()))
    }
}

impl Packed {
    fn arguments(&self) -> [u32; 4] {
        [self.start(), self.end(), self.per_process(), self.stride()]
    }
}

/// Resources in any order, divided into consecutive chunks: `per_process` for each process. A chunk may span nodes.
#[pyclass(frozen, eq, hash, str = "{0}", module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Chunks(pub rankplan_core::Chunks);

#[pymethods]
impl Chunks {
    #[new]
    fn new(py: Python<'_>, resources: Vec<u32>, per_process: u32) -> PyResult<Self> {
        py.detach(|| rankplan_core::Chunks::from_ranks(&resources, per_process)).or_raise(py, None).map(Chunks)
    }

    /// Read ranges separated by commas, such as `0-3,8-11,2`: the inverse of `str()`. Raises `PlacementError`.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &Bound<'_, PyString>, per_process: u32) -> PyResult<Self> {
        let text: &str = &text_of(text)?;
        py.detach(|| rankplan_core::Chunks::parse(text, per_process)).or_raise(py, Some(text)).map(Chunks)
    }

    /// Number of processes.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// All resource ranks in use.
    #[getter]
    fn resources(&self) -> RankSet {
        RankSet(self.0.resources())
    }

    /// Number of resources of each process.
    #[getter]
    fn per_process(&self) -> u32 {
        self.0.per_process()
    }

    fn __repr__(&self) -> String {
        let ranges = match self.0.to_string() {
            text if text.len() <= LONGEST => format!("'{text}'"),
            _ => format!("<{} ranges>", self.0.ranges().len()),
        };
        format!("Chunks({ranges}, per_process={})", self.per_process())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (String, u32)> {
        let chunks = slf.get();
        Ok((slf.get_type().getattr("parse")?, (chunks.0.to_string(), chunks.per_process())))
    }
}
