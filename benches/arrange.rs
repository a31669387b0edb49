//! Arranging a plan of 8 processes per node with tp 8, ep 64 and pp 16 in three levels, and repairing it after failures, beside a
//! plain sort of the nodes by their labels.
//!
//! `cargo bench -p rankplan-core --bench arrange` prints the shortest time for three sizes and the exponent of growth between the
//! smallest and the largest. At the largest, 131,072 nodes are arranged, and repaired after 1,000 failures with 2,000 spares.

#![allow(clippy::expect_used, reason = "the inputs are fixed and valid")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use rankplan_core::arrange::arrange;
use rankplan_core::arrange::demand::{Bond, Demand};
use rankplan_core::arrange::hierarchy::Hierarchy;
use rankplan_core::arrange::objective::Problem;
use rankplan_core::{Counted, Inventory, Layout, NodeSpec, Parallel, Pool, RankSet, Selection, Slots, Table, place};

const EACH: u32 = 8;
const NODES: [u32; 3] = [2_048, 16_384, 131_072];
/// Nodes of an NVLink domain and of a block.
const DOMAIN: u32 = 16;
const BLOCK: u32 = 512;

type Work<'a> = Box<dyn Fn() -> usize + 'a>;

fn main() {
    println!("{:<34}{:>10}{:>12}", "", "nodes", "shortest");
    let mut all: [Vec<Duration>; 5] = Default::default();
    for nodes in NODES {
        let table = placed(nodes);
        let slots = Slots::of(&table);
        let sizes = Parallel { tp: 8, pp: 16, ep: 64, ..Parallel::default() };
        let layout = Layout::new(&sizes, &slots).expect("sizes that divide");
        let demand = || Demand::of(nodes, &[(&table, Some((&slots, &layout)))]);
        let spares = nodes / 64;
        let problem = problem(nodes, spares, demand());
        let segments = Problem { bonds: segments(nodes), segment: 8, ..problem.clone() };
        let failed = repaired(nodes, &problem);
        let cases: [(&str, Work<'_>); 5] = [
            ("sort by labels", Box::new(|| sorted(nodes + spares))),
            ("groups of the plan", Box::new(|| demand().edges.len())),
            ("arrange", Box::new(|| arrange(&problem).expect("enough nodes").nodes.len())),
            ("arrange, segments of 8", Box::new(|| arrange(&segments).expect("enough nodes").nodes.len())),
            ("replan", Box::new(|| arrange(&failed).expect("enough spares").nodes.len())),
        ];
        for ((name, work), times) in cases.iter().zip(&mut all) {
            let each = best(work);
            println!("{name:<34}{nodes:>10}{:>9.3} ms", each.as_secs_f64() * 1e3);
            times.push(each);
        }
    }
    for times in &all {
        if let [first, .., last] = times[..] {
            let larger = f64::from(NODES[NODES.len() - 1]) / f64::from(NODES[0]);
            println!("{:<34}{:>10.2}", "  growth", (last.as_secs_f64() / first.as_secs_f64()).log(larger));
        }
    }
}

/// One process per accelerator, in order.
fn placed(nodes: u32) -> Table {
    let ids = (0..EACH).map(|index| index.to_string()).collect();
    let spec = NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    let all = RankSet::first_ranks(nodes);
    let inventory = Inventory::new(vec![(all.clone(), spec)]).expect("a uniform inventory");
    let selection = Selection { label: "cluster".into(), nodes: all, counted: Counted::AcceleratorsOrNodes };
    let pool = Pool::new(&inventory, &[selection]).expect("all nodes");
    place("all", &pool).expect("a placement").1
}

/// The labels of nodes that are listed in no order: datacenter, block and NVLink domain.
fn labels(nodes: u32) -> [Vec<u32>; 3] {
    let shuffled = |node: u32| (u64::from(node) * 2_654_435_761 % u64::from(nodes)) as u32;
    let of = |size: u32| (0..nodes).map(|node| shuffled(node) / size).collect();
    [of(nodes.div_ceil(4)), of(BLOCK), of(DOMAIN)]
}

fn problem(nodes: u32, spares: u32, demand: Demand) -> Problem {
    let all = nodes + spares;
    Problem {
        domains: Hierarchy::new(all, &labels(all)).expect("labels of all nodes"),
        node_class: vec![0; all as usize],
        rank_class: vec![Some(0); nodes as usize],
        unfit: BTreeMap::new(),
        demand,
        bonds: Vec::new(),
        preferred: Vec::new(),
        balanced: Vec::new(),
        caps: Vec::new(),
        pinned: vec![None; nodes as usize],
        old: Vec::new(),
        segment: 1,
    }
}

fn segments(nodes: u32) -> Vec<Bond> {
    (0..nodes / 8).map(|first| Bond { level: 2, ranks: (8 * first..8 * first + 8).collect(), source: 0 }).collect()
}

/// The same plan, arranged before, with every 128th node gone.
fn repaired(nodes: u32, problem: &Problem) -> Problem {
    let mut old = arrange(problem).expect("enough nodes").nodes;
    old.iter_mut().step_by(128).for_each(|node| *node = None);
    // Nodes that failed are no spares: an additional class that nothing needs.
    let mut node_class = vec![1; problem.node_class.len()];
    let spares = problem.node_class.len() as u32 - nodes;
    old.iter().flatten().for_each(|&node| node_class[node as usize] = 0);
    let mut left = spares;
    for node in problem.domains.order().iter().rev() {
        if left > 0 && node_class[*node as usize] == 1 {
            node_class[*node as usize] = 0;
            left -= 1;
        }
    }
    Problem { old, node_class, ..problem.clone() }
}

fn sorted(nodes: u32) -> usize {
    let labels = labels(nodes);
    let mut order: Vec<u32> = (0..nodes).collect();
    order.sort_by_key(|&node| labels.each_ref().map(|column| column[node as usize]));
    order.len()
}

fn best<T>(work: impl Fn() -> T) -> Duration {
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || start.elapsed() < Duration::from_secs(1) {
        let before = Instant::now();
        drop(black_box(work()));
        times.push(before.elapsed());
    }
    times.into_iter().min().unwrap_or_default()
}
