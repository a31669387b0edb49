//! One task of the core, by name: `benches/instructions.py` counts the instructions of `counted`. This is its own package
//! because it must be built in the release profile, without the dependencies of the other benchmarks.

#![allow(clippy::expect_used, reason = "the inputs are fixed and valid")]

use std::hint::black_box;
use std::process::ExitCode;

use rankplan_core::domains::domains;
use rankplan_core::requests::{Division, Kind, Naming};
use rankplan_core::syntax::parse;
use rankplan_core::{
    Chunks, Counted, Fill, Free, Inventory, NodeSpec, Packed, Pool, RankMap, RankSet, Requests, Rule, Selection, apply,
    place,
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
        Some("pack") => {
            let inventory = inventory();
            let sizes = [EACH / 2];
            counted(|| {
                Free::new(&inventory, &RankSet::default(), None)
                    .take(NODES * EACH, Fill::Bundles(&sizes))
                    .expect("room")
            });
        }
        Some("requests") => {
            let inventory = inventory();
            let taken = Free::new(&inventory, &RankSet::default(), None).take(NODES * EACH, Fill::Next).expect("room");
            let kind = Kind {
                component: "actor".into(),
                strategy: Some("STRICT_PACK".into()),
                optional: false,
                order: None,
                bundles: Vec::new(),
            };
            let division = Division { bundles: &[1.into()], per_group: Some(EACH) };
            counted(|| Requests::of(&inventory, &taken, &kind, division, Naming::Numbered("group:")));
        }
        Some("domains") => {
            let labels: Vec<_> =
                (0..NODES).map(|node| [format!("b{}", node / 512), format!("r{}", node / 32)]).collect();
            let levels = ["block".to_owned(), "rack".to_owned()];
            let label = |node: u32, key: &str| Some(labels[node as usize][usize::from(key == "rack")].as_str());
            counted(|| domains(NODES, &levels, label));
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

fn inventory() -> Inventory {
    let ids = (0..EACH).map(|index| index.to_string()).collect();
    let spec = NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    Inventory::new(vec![(RankSet::first_ranks(NODES), spec)]).expect("a uniform inventory")
}

fn pool() -> Pool {
    let nodes = RankSet::first_ranks(NODES);
    let selection = Selection { label: "cluster".into(), nodes, counted: Counted::AcceleratorsOrNodes };
    Pool::new(&inventory(), &[selection]).expect("all nodes")
}
