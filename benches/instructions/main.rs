//! One task of the core, by name: `benches/instructions.py` counts the instructions of `counted`. This is its own package
//! because it must be built in the release profile, without the dependencies of the other benchmarks.

#![allow(clippy::expect_used, reason = "the inputs are fixed and valid")]

use std::hint::black_box;
use std::process::ExitCode;

use rankplan_core::syntax::parse;
use rankplan_core::{
    Chunks, Counted, Inventory, NodeSpec, Packed, Pool, RankMap, RankSet, Rule, Selection, apply, place,
};

const NODES: u32 = 16_384;
const EACH: u32 = 8;
const SEGMENTS: u32 = 65_536;

fn main() -> ExitCode {
    // Two accelerators for two processes, many times.
    let segments: Vec<_> = (0..SEGMENTS).map(|index| format!("{0}-{1}:{0}-{1}", 2 * index, 2 * index + 1)).collect();
    let text = segments.join(",");
    let pool = pool();
    match std::env::args().nth(1).as_deref() {
        Some("parse") => counted(|| parse(&text).expect("valid")),
        Some("place-segments") => counted(|| place(&text, &pool).expect("valid")),
        Some("place-all") => counted(|| place("all", &pool).expect("valid")),
        Some("assign-segments") => {
            let map = RankMap::parse(&text, Some(pool.len())).expect("valid");
            counted(|| apply(Rule::Map(&map), &pool).expect("valid"));
        }
        Some("assign-packed") => {
            let packed = Packed::new(0, 2 * SEGMENTS - 1, 2, 2).expect("valid");
            counted(|| apply(Rule::Packed(&packed), &pool).expect("valid"));
        }
        Some("assign-chunks") => {
            let chunks = Chunks::parse(&format!("0-{}", 2 * SEGMENTS - 1), 4).expect("valid");
            counted(|| apply(Rule::Chunks(&chunks), &pool).expect("valid"));
        }
        Some("refuse") => {
            let text = format!("{text},0");
            counted(|| place(&text, &pool).expect_err("a duplicate"));
        }
        Some("union") => {
            let even: RankSet = (0..2 * SEGMENTS).step_by(2).collect();
            let thirds: RankSet = (0..3 * SEGMENTS).step_by(3).collect();
            counted(|| even.union(&thirds));
        }
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) {
    black_box(work());
}

fn pool() -> Pool {
    let ids = (0..EACH).map(|index| index.to_string()).collect();
    let spec = NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    let nodes = RankSet::first_ranks(NODES);
    let inventory = Inventory::new(vec![(nodes.clone(), spec)]).expect("a uniform inventory");
    let selection = Selection { label: "cluster".into(), nodes, counted: Counted::AcceleratorsOrNodes };
    Pool::new(&inventory, &[selection]).expect("all nodes")
}
