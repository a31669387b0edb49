//! Parallel groups of 1,048,576 slots on 131,072 nodes x 8 with tp 8, pp 16 and ep 64: slots, groups, crossings of every kind
//! and rails, beside a model that expands every group.
//!
//! `cargo bench -p rankplan-core --bench parallel` prints the shortest time for three sizes, how many times longer the model
//! takes, and the exponent of growth between the smallest and the largest.

#![allow(clippy::expect_used, reason = "the inputs are fixed and valid")]

use std::collections::HashSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rankplan_core::groups::weights::Side;
use rankplan_core::{Chunks, Inventory, Kind, Layout, NodeSpec, Parallel, Pool, ProcessRank, RankSet, Rule};
use rankplan_core::{Counted, Selection, Slots, Table, WeightMap, apply, place};

const EACH: u32 = 8;
const NODES: [u32; 3] = [2_048, 16_384, 131_072];

fn main() {
    let sizes = Parallel { tp: 8, pp: 16, ep: 64, ..Parallel::default() };
    println!("{:<34}{:>10}{:>12}{:>12}", "", "slots", "shortest", "expanding");
    for (name, rule) in [("all", None), ("rotated by half a node", Some(EACH / 2))] {
        let mut times = Vec::new();
        for nodes in NODES {
            let (inventory, table) = placed(nodes, rule);
            let each = best(|| checked(&sizes, &table, &inventory));
            let model = best(|| expanded(&sizes, &table));
            line(name, table.len(), each, Some(model));
            times.push(each);
        }
        growth(&times);
    }
    let mut times = Vec::new();
    for nodes in NODES {
        // Three parts of eight send to the other five: RLinf's `DisaggRankMapper` has no map for that.
        let total = nodes * EACH;
        let texts = [format!("0-{}", total / 8 * 3 - 1), format!("{}-{}", total / 8 * 3, total - 1)];
        let sides = texts.map(|text| Slots::of(&by_text(nodes, &text).1));
        let layouts = [(8, 0), (4, 1)].map(|(tp, side): (u32, usize)| {
            Layout::new(&Parallel { tp, ..Parallel::default() }, &sides[side]).expect("sizes that divide")
        });
        let [sender, receiver] = [0, 1].map(|side| Side { name: "", slots: &sides[side], layout: &layouts[side] });
        let each = best(|| WeightMap::new(sender, receiver).expect("senders"));
        line("weight map", total, each, None);
        times.push(each);
    }
    growth(&times);
}

/// One process per accelerator, in order or with the first ones last.
fn placed(nodes: u32, rotated: Option<u32>) -> (Inventory, Table) {
    let Some(rotated) = rotated else { return by_text(nodes, "all") };
    let (inventory, pool) = cluster(nodes);
    let mut ranks: Vec<u32> = (0..nodes * EACH).collect();
    ranks.rotate_left(rotated as usize);
    let table = apply(Rule::Chunks(&Chunks::from_ranks(&ranks, 1).expect("chunks")), &pool);
    (inventory, table.expect("a table"))
}

fn by_text(nodes: u32, text: &str) -> (Inventory, Table) {
    let (inventory, pool) = cluster(nodes);
    (inventory, place(text, &pool).expect("a placement").1)
}

fn cluster(nodes: u32) -> (Inventory, Pool) {
    let ids = (0..EACH).map(|index| index.to_string()).collect();
    let spec = NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    let all = RankSet::first_ranks(nodes);
    let inventory = Inventory::new(vec![(all.clone(), spec)]).expect("a uniform inventory");
    let selection = Selection { label: "cluster".into(), nodes: all, counted: Counted::AcceleratorsOrNodes };
    let pool = Pool::new(&inventory, &[selection]).expect("all nodes");
    (inventory, pool)
}

fn checked(sizes: &Parallel, table: &Table, inventory: &Inventory) -> usize {
    let slots = Slots::of(table);
    let layout = Layout::new(sizes, &slots).expect("sizes that divide");
    let crossing: u32 = Kind::ALL.into_iter().map(|kind| slots.spans(layout.groups(kind)).crossing).sum();
    crossing as usize + slots.rails(layout.groups(Kind::Dp), inventory).mismatched as usize
}

fn expanded(sizes: &Parallel, table: &Table) -> usize {
    let slots = Slots::of(table);
    let layout = Layout::new(sizes, &slots).expect("sizes that divide");
    let nodes: Vec<_> =
        (0..table.len()).filter_map(|rank| Some(table.row(ProcessRank(rank))?.cluster_node_rank)).collect();
    let groups = Kind::ALL.into_iter().flat_map(|kind| {
        let groups = layout.groups(kind);
        (0..groups.len()).filter_map(move |index| Some(groups.get(index)?.slots().collect::<Vec<_>>()))
    });
    groups.filter(|group| group.iter().map(|&slot| nodes[slot as usize]).collect::<HashSet<_>>().len() > 1).count()
}

fn best<T>(mut work: impl FnMut() -> T) -> Duration {
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || start.elapsed() < Duration::from_secs(1) {
        let before = Instant::now();
        drop(black_box(work()));
        times.push(before.elapsed());
    }
    times.into_iter().min().unwrap_or_default()
}

fn line(name: &str, slots: u32, each: Duration, model: Option<Duration>) {
    let ratio = model.map_or(String::new(), |model| format!("{:>11.0}x", model.as_secs_f64() / each.as_secs_f64()));
    println!("{name:<34}{slots:>10}{:>9.3} ms{ratio}", each.as_secs_f64() * 1e3);
}

fn growth(times: &[Duration]) {
    if let [first, .., last] = times {
        let larger = f64::from(NODES[NODES.len() - 1]) / f64::from(NODES[0]);
        println!("{:<34}{:>10.2}", "  growth", (last.as_secs_f64() / first.as_secs_f64()).log(larger));
    }
}
