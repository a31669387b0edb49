//! Which accelerators a process sees.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};
use std::convert::Infallible;

/// Which accelerators of its node a process sees. In Python: `own`, `node` or `own-first`; `True` is `own`, `False` is `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// Its own.
    Own,
    /// All, in the order of the node.
    Node,
    /// All, its own first.
    OwnFirst,
}

impl Visibility {
    /// The name of the policy.
    pub fn name(self) -> &'static str {
        match self {
            Visibility::Own => "own",
            Visibility::Node => "node",
            Visibility::OwnFirst => "own-first",
        }
    }

    /// The local indices that a process sees; `own` are those of its own accelerators, `count` is the node's number.
    pub fn seen(self, own: Vec<u16>, count: usize) -> Vec<usize> {
        let own: Vec<usize> = own.into_iter().map(usize::from).collect();
        match self {
            Visibility::Own => own,
            Visibility::Node => (0..count).collect(),
            Visibility::OwnFirst => {
                let others = (0..count).filter(|index| !own.contains(index)).collect::<Vec<_>>();
                own.into_iter().chain(others).collect()
            }
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Visibility {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(isolate) = given.cast::<PyBool>() {
            return Ok(if isolate.is_true() { Visibility::Own } else { Visibility::Node });
        }
        let name: String = given.extract()?;
        [Visibility::Own, Visibility::Node, Visibility::OwnFirst]
            .into_iter()
            .find(|known| known.name() == name)
            .ok_or_else(|| PyValueError::new_err(format!("unknown visibility '{name}'; use own, node or own-first")))
    }
}

impl<'py> IntoPyObject<'py> for Visibility {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyString::new(py, self.name()))
    }
}
