//! Indices that Python passes: any int, of which those that no sequence can have are an `IndexError` too.

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;

/// An index, negative or not.
#[derive(Clone, Copy)]
pub struct Index(pub isize);

impl Index {
    /// The index in a sequence of this length, counted from its end if negative.
    pub fn of(self, len: usize) -> Option<usize> {
        let at = if self.0 < 0 { self.0 + len as isize } else { self.0 };
        usize::try_from(at).ok().filter(|&at| at < len)
    }

    /// The index as a slot or a rank; raises `IndexError` unless it is one of `0..len`. `what` names it.
    pub fn within(self, len: u32, what: &str) -> PyResult<u32> {
        let at = u32::try_from(self.0).ok().filter(|&at| at < len);
        at.ok_or_else(|| PyIndexError::new_err(format!("{what} {} of {len}", self.0)))
    }
}

impl<'py> FromPyObject<'_, 'py> for Index {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match given.extract::<isize>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {
                Err(PyIndexError::new_err("the index is larger than that of any sequence"))
            }
            found => found.map(Index),
        }
    }
}
