//! `rankplan._core`: converts between Python and `rankplan-core`, and forwards.

mod arrange;
mod columns;
mod errors;
mod free;
mod index;
mod inventory;
mod machine;
mod memory;
mod node;
mod parallel;
mod pickling;
mod placement;
mod placements;
mod plan_file;
mod pool;
mod rank_set;
mod requests;
mod rules;
mod runs;
mod tune;
mod value;
mod visibility;

use pyo3::prelude::*;

/// The compiled core of rankplan.
#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use super::arrange::{Arrangement, Hierarchy, Problem, pack_segments};
    #[pymodule_export]
    use super::errors::{error_codes, render};
    #[pymodule_export]
    use super::free::{Free, Short, Taken};
    #[pymodule_export]
    use super::inventory::{
        AddressKey, Inventory, check_hardware_type, domains, level_faults, natural_order, read_inventory, read_ranks,
    };
    #[pymodule_export]
    use super::machine::{cpu_list, groups_text, pci_address};
    #[pymodule_export]
    use super::memory::{
        engine_likely, engine_memory, host_store, likely_room, model_params, switch_likely, switch_memory,
        training_likely, training_memory, usual_share,
    };
    #[pymodule_export]
    use super::node::{AcceleratorFacts, NicFacts, NodeSpec};
    #[pymodule_export]
    use super::parallel::{Domains, Groups, Layout, SlotSets, Spans, WeightMap};
    #[pymodule_export]
    use super::placement::Placement;
    #[pymodule_export]
    use super::placements::Placements;
    #[pymodule_export]
    use super::plan_file::{PlanFile, SavedPlan, read_cluster};
    #[pymodule_export]
    use super::pool::Pool;
    #[pymodule_export]
    use super::rank_set::RankSet;
    #[pymodule_export]
    use super::requests::{Request, Requests, Sorting, joined_pools};
    #[pymodule_export]
    use super::rules::{Chunks, Packed, RankMap};
    #[pymodule_export]
    use super::runs::{Pattern, Run};
    #[pymodule_export]
    use super::tune::best_schedule;

    use pyo3::prelude::*;
    use pyo3::types::PyTuple;
    use rankplan_core::machine::DISTANCES;
    use rankplan_core::{ResourceKind, ids};

    /// Register the classes with the abstract ones of `collections.abc` that they implement.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let abc = py.import("collections.abc")?;
        abc.getattr("Set")?.call_method1("register", (py.get_type::<RankSet>(),))?;
        for class in [py.get_type::<Placements>(), py.get_type::<Groups>(), py.get_type::<Requests>()] {
            abc.getattr("Sequence")?.call_method1("register", (class,))?;
        }
        module.add("DISTANCES", PyTuple::new(py, DISTANCES)?)?;
        Ok(())
    }

    #[pymodule_export]
    const USABLE_MEMORY: f64 = super::memory::USABLE;
    #[pymodule_export]
    const WEIGHT_BUCKET: u64 = super::memory::BUCKET;
    #[pymodule_export]
    const FUSED_CHUNK: u64 = super::memory::FUSED_CHUNK;
    #[pymodule_export]
    const USUAL_LENGTH: u64 = super::memory::USUAL_LENGTH;
    #[pymodule_export]
    const CLUSTER: &str = ids::CLUSTER;
    #[pymodule_export]
    const NODE: &str = ids::NODE;
    #[pymodule_export]
    const ACCELERATOR: &str = ResourceKind::ACCELERATOR;
    #[pymodule_export]
    const WHOLE_NODE: &str = ResourceKind::NODE;
    #[pymodule_export]
    const MAX_CPU: u32 = rankplan_core::machine::MAX_CPU;
    #[pymodule_export]
    const MAX_RANK: u32 = ids::MAX_RANK;
    #[pymodule_export]
    const MAX_NODES: u32 = ids::MAX_NODES;
    #[pymodule_export]
    const MAX_PROCESSES: u32 = ids::MAX_PROCESSES;
    #[pymodule_export]
    const MAX_LOCAL: u32 = ids::MAX_LOCAL;
    #[pymodule_export]
    const PLAN_VERSION: i64 = rankplan_core::plan_reader::VERSION;
    #[pymodule_export]
    const SAME_SECONDS: f64 = rankplan_core::tune::problem::SAME;
}
