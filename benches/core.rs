//! The core alone: parse, check and assign on 131,072 nodes x 8, beside merely writing columns of the same size.
//!
//! `cargo bench -p rankplan-core`; a name, e.g. `-- place/all`, runs one of them.

#![allow(clippy::expect_used, reason = "the inputs are fixed and valid")]
#![allow(missing_docs, reason = "criterion makes public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rankplan_core::topology::Counted;
use rankplan_core::{Inventory, NodeSpec, Packed, Pool, RankMap, RankSet, Selection, place};

const NODES: u32 = 131_072;
const EACH: u32 = 8;
const TOTAL: u32 = NODES * EACH;

fn inventory() -> Inventory {
    let ids = (0..EACH).map(|index| index.to_string()).collect();
    let spec = NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    Inventory::new(vec![(RankSet::first_ranks(NODES), spec)]).expect("a uniform inventory")
}

fn pool(inventory: &Inventory, counted: Counted) -> Pool {
    let selection = Selection { label: "cluster".into(), nodes: RankSet::first_ranks(NODES), counted };
    Pool::new(inventory, &[selection]).expect("all nodes")
}

/// What any implementation has to do: 16 bytes a row and 2 a device.
fn write_columns() -> ([Vec<u32>; 4], Vec<u16>) {
    let words = [
        (0..TOTAL).map(|rank| rank / EACH).collect(),
        (0..TOTAL).map(|rank| rank / EACH).collect(),
        (0..TOTAL).map(|rank| rank % EACH).collect(),
        (0..=TOTAL).collect(),
    ];
    (words, (0..TOTAL).map(|rank| (rank % EACH) as u16).collect())
}

fn segments(count: u32, segment: impl Fn(u32) -> String) -> String {
    (0..count).map(segment).collect::<Vec<_>>().join(",")
}

fn benches(criterion: &mut Criterion) {
    let inventory = inventory();
    let accelerators = pool(&inventory, Counted::AcceleratorsOrNodes);
    let nodes = pool(&inventory, Counted::Nodes);

    let mut group = criterion.benchmark_group("place");
    group.measurement_time(Duration::from_secs(4)).throughput(Throughput::Elements(TOTAL.into()));
    group.bench_function("columns only", |bench| bench.iter(|| black_box(write_columns())));
    let cases = [
        ("all", "all".to_owned()),
        ("blocks of 8", format!("all:0-{}", NODES - 1)),
        ("4 processes each", format!("0-{}:0-{}", TOTAL / 4 - 1, TOTAL - 1)),
        ("a million segments", segments(TOTAL, |index| index.to_string())),
    ];
    for (name, text) in &cases {
        group.bench_function(*name, |bench| bench.iter(|| place(black_box(text), &accelerators).expect("valid")));
    }
    let by_node = format!("all:0-{}", TOTAL - 1);
    group.bench_function("by node", |bench| bench.iter(|| place(black_box(&by_node), &nodes).expect("valid")));
    group.bench_function("packed, stride 2", |bench| {
        let packed = Packed::new(0, TOTAL - 1, 2, 2).expect("valid");
        bench.iter(|| packed.place(&accelerators).expect("valid"));
    });
    group.finish();

    let mut group = criterion.benchmark_group("refuse");
    group.measurement_time(Duration::from_secs(4)).throughput(Throughput::Elements(TOTAL.into()));
    let faulty = [
        ("descending", segments(TOTAL, |index| (TOTAL - 1 - index).to_string())),
        ("each twice", segments(TOTAL, |index| (index / 2).to_string())),
        (
            "no multiple",
            segments(TOTAL / 4, |index| format!("{0}-{1}:{0}-{2}", index * 3, index * 3 + 2, index * 3 + 1)),
        ),
        ("commas", ",".repeat(TOTAL as usize)),
    ];
    for (name, text) in &faulty {
        group.bench_function(*name, |bench| bench.iter(|| place(black_box(text), &accelerators).expect_err("faulty")));
    }
    group.finish();

    let mut group = criterion.benchmark_group("set");
    let even: RankSet = (0..TOTAL).step_by(2).collect();
    let thirds: RankSet = (0..TOTAL).step_by(3).collect();
    group.bench_function("union", |bench| bench.iter(|| black_box(&even).union(&thirds)));
    group.bench_function("difference", |bench| bench.iter(|| black_box(&even).difference(&thirds)));
    group.bench_function("parse", |bench| {
        bench.iter_batched(|| cases[3].1.clone(), |text| RankMap::parse(&text, None), BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group! { name = core; config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)); targets = benches }
criterion_main!(core);
