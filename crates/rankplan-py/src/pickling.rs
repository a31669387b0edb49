//! The type of `__reduce__`.

use pyo3::prelude::*;

/// The result of `__reduce__`: a callable, and the arguments that recreate the object.
pub type Reduced<'py, State> = PyResult<(Bound<'py, PyAny>, State)>;
