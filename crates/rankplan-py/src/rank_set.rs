//! `RankSet`.

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyString};
use rankplan_core::RankRange;
use rankplan_core::ids::MAX_RANK;
use rankplan_core::syntax::parse_rank_set;

use crate::errors::{OrRaise, text_of};
use crate::index::Index;

/// A set of ranks, stored as ranges, from a text (`0-3,7`) or an iterable of int. It is a `collections.abc.Set`, whose
/// operators take other `RankSet`s; `[i]` is the i-th rank, and `[i:j]` is the `RankSet` of the ranks i to j - 1.
///
/// Raises `PlacementError` for a text with faults, and `ValueError` for numbers outside 0 to `MAX_RANK`.
#[pyclass(frozen, eq, ord, hash, from_py_object, module = "rankplan._core")]
#[derive(Clone, PartialEq, PartialOrd, Eq, Hash)]
pub struct RankSet(pub rankplan_core::RankSet);

impl RankSet {
    /// The union of ranges.
    pub fn of(ranges: impl IntoIterator<Item = RankRange>) -> Self {
        RankSet(rankplan_core::RankSet::from_ranges(ranges))
    }
}

#[pymethods]
impl RankSet {
    #[new]
    #[pyo3(signature = (ranks = None, /))]
    fn new(ranks: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(ranks) = ranks else { return Ok(RankSet(rankplan_core::RankSet::default())) };
        if let Ok(set) = ranks.cast::<RankSet>() {
            return Ok(set.get().clone());
        }
        if let Ok(text) = ranks.cast::<PyString>() {
            let text = text_of(text)?;
            return parse_rank_set(&text).or_raise(ranks.py(), Some(&text)).map(RankSet);
        }
        let mut list = Vec::new();
        for rank in ranks
            .try_iter()
            .map_err(|_| PyTypeError::new_err("ranks must be a text such as \"0-3,7\" or an iterable of int"))?
        {
            let rank = rank?;
            // A negative or too large int fails in the extraction; other types keep their TypeError.
            let number = match rank.extract::<u32>() {
                Err(error) if error.is_instance_of::<PyOverflowError>(rank.py()) => u32::MAX,
                other => other?,
            };
            if number > MAX_RANK {
                return Err(PyValueError::new_err(format!("{rank} is not a rank; ranks are 0 to {MAX_RANK}")));
            }
            list.push(number);
        }
        Ok(RankSet(list.into_iter().collect()))
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn __contains__(&self, rank: &Bound<'_, PyAny>) -> bool {
        rank.extract::<u32>().is_ok_and(|rank| self.0.contains(rank))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let count = self.0.len();
        if let Ok(slice) = key.cast::<PySlice>() {
            let positions = slice.indices(count as isize)?;
            if positions.step != 1 {
                return Err(PyValueError::new_err("a slice of a RankSet has step 1"));
            }
            let part = self.0.slice(positions.start as u32..positions.stop as u32);
            return Ok(Bound::new(py, RankSet(part))?.into_any());
        }
        let position: Index = key.extract()?;
        let rank = position.of(count as usize).and_then(|at| self.0.nth(at as u32));
        let rank = rank
            .ok_or_else(|| PyIndexError::new_err(format!("index {} is out of range for {count} ranks", position.0)))?;
        Ok(rank.into_pyobject(py)?.into_any())
    }

    fn __iter__(&self) -> RankIterator {
        RankIterator { set: self.0.clone(), position: 0 }
    }

    /// Return the position of `rank` in ascending order, counted from 0; raise `ValueError` if the set lacks it.
    fn index(&self, rank: &Bound<'_, PyAny>) -> PyResult<u32> {
        let position = rank.extract::<u32>().ok().and_then(|rank| self.0.position(rank));
        position.ok_or_else(|| PyValueError::new_err(format!("rank {rank} is not in {}", self.__repr__())))
    }

    /// First and last rank of every range, ascending.
    #[getter]
    fn ranges(&self) -> Vec<(u32, u32)> {
        self.0.ranges().iter().map(|range| (range.first(), range.last())).collect()
    }

    fn __or__(&self, other: &RankSet) -> RankSet {
        RankSet(self.0.union(&other.0))
    }

    fn __and__(&self, other: &RankSet) -> RankSet {
        RankSet(self.0.intersection(&other.0))
    }

    fn __sub__(&self, other: &RankSet) -> RankSet {
        RankSet(self.0.difference(&other.0))
    }

    fn __xor__(&self, other: &RankSet) -> RankSet {
        RankSet(self.0.symmetric_difference(&other.0))
    }

    /// Return the ranks of this set and of the others.
    #[pyo3(signature = (*others))]
    fn union(&self, others: Vec<Bound<'_, RankSet>>) -> RankSet {
        RankSet(rankplan_core::RankSet::union_of(others.iter().map(|other| &other.get().0).chain([&self.0])))
    }

    /// Return whether no rank is in both sets.
    fn isdisjoint(&self, other: &RankSet) -> bool {
        self.0.is_disjoint(&other.0)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("RankSet('{}')", self.0)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, pyo3::types::PyType>, (String,)) {
        (slf.get_type(), (slf.get().0.to_string(),))
    }
}

#[pyclass(module = "rankplan._core")]
struct RankIterator {
    set: rankplan_core::RankSet,
    position: u32,
}

#[pymethods]
impl RankIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Option<u32> {
        let rank = self.set.nth(self.position)?;
        self.position += 1;
        Some(rank)
    }
}
