//! `RankMap`, `Packed` and `Chunks`: which resources each process uses.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::Reduced;
use crate::errors::{refuse, text_of};
use crate::rank_set::RankSet;

/// The checked segments of one component.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct RankMap(pub rankplan_core::RankMap);

#[pymethods]
impl RankMap {
    /// Read and check a placement text against a number of resources, if it is known.
    ///
    /// Raises `PlacementError` with every fault of the text.
    #[staticmethod]
    #[pyo3(signature = (text, num_resources = None))]
    fn parse(py: Python<'_>, text: &Bound<'_, PyString>, num_resources: Option<u32>) -> PyResult<Self> {
        let text: &str = &text_of(text)?;
        py.detach(|| rankplan_core::RankMap::parse(text, num_resources))
            .map(RankMap)
            .map_err(|faults| refuse(py, Some(text), faults))
    }

    /// Return the map in which each process uses one of these lists of ranks.
    ///
    /// Ranks are sorted inside a process, and processes by their first. Raises `PlacementError`.
    #[staticmethod]
    fn from_lists(py: Python<'_>, lists: Vec<Vec<u32>>) -> PyResult<Self> {
        rankplan_core::RankMap::from_lists(lists).map(RankMap).map_err(|fault| refuse(py, None, vec![fault]))
    }

    /// Number of processes.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// Resource ranks that any process uses.
    #[getter]
    fn resources(&self) -> RankSet {
        RankSet(self.0.resources())
    }

    /// The segments: resource ranks and process ranks.
    #[getter]
    fn segments(&self) -> Vec<(RankSet, RankSet)> {
        let segment = |segment: rankplan_core::rank_map::Segment<'_>| {
            let processes = rankplan_core::RankRange::counted(segment.first_process.0, segment.processes);
            (
                RankSet(rankplan_core::RankSet::from_ranges(segment.ranges.iter().copied())),
                RankSet(rankplan_core::RankSet::from_ranges(processes)),
            )
        };
        self.0.segments().map(segment).collect()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let text = self.0.to_string();
        if text.len() <= 80 {
            format!("RankMap('{text}')")
        } else {
            format!("RankMap(<{} segments>)", self.0.num_segments())
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (Vec<(RankSet, u32)>,)> {
        let segments = slf.get().0.segments();
        let state = segments.map(|segment| {
            (RankSet(rankplan_core::RankSet::from_ranges(segment.ranges.iter().copied())), segment.processes)
        });
        Ok((slf.get_type().getattr("_restore")?, (state.collect(),)))
    }

    #[classmethod]
    fn _restore(class: &Bound<'_, PyType>, segments: Vec<(RankSet, u32)>) -> PyResult<Self> {
        let segments = segments.iter().map(|(resources, processes)| (&resources.0, *processes));
        rankplan_core::RankMap::from_segments(segments)
            .map(RankMap)
            .map_err(|fault| refuse(class.py(), None, vec![fault]))
    }
}

/// The windows of the packed strategy.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Packed(pub rankplan_core::Packed);

#[pymethods]
impl Packed {
    #[new]
    fn new(py: Python<'_>, start: u32, end: u32, per_process: u32, stride: u32) -> PyResult<Self> {
        rankplan_core::Packed::new(start, end, per_process, stride)
            .map(Packed)
            .map_err(|fault| refuse(py, None, vec![fault]))
    }

    /// Number of processes.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// Resource ranks that any process uses.
    #[getter]
    fn resources(&self) -> RankSet {
        RankSet(rankplan_core::RankSet::from_ranges([self.0.range()]))
    }

    /// The first resource rank.
    #[getter]
    fn start(&self) -> u32 {
        self.0.range().first()
    }

    /// The last resource rank.
    #[getter]
    fn end(&self) -> u32 {
        self.0.range().last()
    }

    /// Resources of each process.
    #[getter]
    fn per_process(&self) -> u32 {
        self.0.per_process()
    }

    /// The distance between two resources of a process.
    #[getter]
    fn stride(&self) -> u32 {
        self.0.stride()
    }

    fn __repr__(&self) -> String {
        let (start, end, per_process, stride) = self.arguments();
        format!("Packed(start={start}, end={end}, per_process={per_process}, stride={stride})")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (u32, u32, u32, u32)) {
        (slf.get_type(), slf.get().arguments())
    }
}

impl Packed {
    fn arguments(&self) -> (u32, u32, u32, u32) {
        (self.start(), self.end(), self.0.per_process(), self.0.stride())
    }
}

/// Resources in any order, cut into consecutive chunks: `per_process` for each process. A chunk may span nodes.
#[pyclass(frozen, eq, hash, module = "rankplan._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Chunks(pub rankplan_core::Chunks);

#[pymethods]
impl Chunks {
    #[new]
    fn new(py: Python<'_>, resources: Vec<u32>, per_process: u32) -> PyResult<Self> {
        py.detach(|| rankplan_core::Chunks::from_ranks(&resources, per_process))
            .map(Chunks)
            .map_err(|fault| refuse(py, None, vec![fault]))
    }

    /// Read ranges between commas, such as `0-3,8-11,2`; this is how chunks are printed. Raises `PlacementError`.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &Bound<'_, PyString>, per_process: u32) -> PyResult<Self> {
        let text: &str = &text_of(text)?;
        py.detach(|| rankplan_core::Chunks::parse(text, per_process))
            .map(Chunks)
            .map_err(|fault| refuse(py, Some(text), vec![fault]))
    }

    /// Number of processes.
    #[getter]
    fn world_size(&self) -> u32 {
        self.0.world_size()
    }

    /// Resource ranks that any process uses.
    #[getter]
    fn resources(&self) -> RankSet {
        RankSet(self.0.resources())
    }

    /// Resources of each process.
    #[getter]
    fn per_process(&self) -> u32 {
        self.0.per_process()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let text = self.0.to_string();
        let shown = if text.len() <= 80 { format!("'{text}'") } else { format!("<{} ranges>", self.0.ranges().len()) };
        format!("Chunks({shown}, per_process={})", self.0.per_process())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Reduced<'py, (String, u32)> {
        Ok((slf.get_type().getattr("parse")?, (slf.get().0.to_string(), slf.get().0.per_process())))
    }
}
