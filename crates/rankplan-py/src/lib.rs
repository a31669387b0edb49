//! `rankplan._core`: conversions between Python and `rankplan-core`, and nothing else.

mod errors;
mod placement;
mod placements;
mod rank_map;
mod rank_set;
mod topology;

use pyo3::prelude::*;

/// What `__reduce__` returns: a callable, and the arguments that make the object again.
type Reduced<'py, State> = PyResult<(Bound<'py, PyAny>, State)>;

/// The compiled core of rankplan.
#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use super::errors::{error_codes, render};
    #[pymodule_export]
    use super::placement::Placement;
    #[pymodule_export]
    use super::placements::Placements;
    #[pymodule_export]
    use super::rank_map::{Packed, RankMap};
    #[pymodule_export]
    use super::rank_set::RankSet;
    #[pymodule_export]
    use super::topology::{Inventory, Pool};
}
