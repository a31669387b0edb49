//! `RankMap` and `Packed`: what a strategy is made of.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::Reduced;
use crate::errors::{refuse, text_of};
use crate::rank_set::RankSet;

/// The checked segments of one component.
#[pyclass(frozen, eq, hash, from_py_object, module = "rankplan._core")]
#[derive(Clone, PartialEq, Eq, Hash)]
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
    fn _restore(_class: &Bound<'_, PyType>, segments: Vec<(RankSet, u32)>) -> Self {
        RankMap(rankplan_core::RankMap::from_segments(
            segments.iter().map(|(resources, processes)| (&resources.0, *processes)),
        ))
    }
}

/// The windows of the packed strategy.
#[pyclass(frozen, eq, hash, from_py_object, module = "rankplan._core")]
#[derive(Clone, PartialEq, Eq, Hash)]
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

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (u32, u32, u32, u32)) {
        (slf.get_type(), slf.get().0.arguments())
    }
}
