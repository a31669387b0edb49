//! Taking accelerators, compared with lists of single accelerators that are searched from the start each time.

#![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

use proptest::prelude::*;
use rankplan_core::{Fill, Free, Inventory, NodeRank, RankRange, RankSet, Short, Taken, Torn};

use crate::common::inventory;

#[allow(dead_code, reason = "other tests place on pools")]
mod common;

/// The free accelerators of each node that is looked at, in the order in which they are taken.
type Model = Vec<Vec<u32>>;

fn left(model: &Model) -> u32 {
    model.iter().map(Vec::len).sum::<usize>() as u32
}

fn take_from(model: &mut Model, node: usize, count: u32) -> Vec<u32> {
    model[node].drain(..count as usize).collect()
}

fn together(model: &mut Model, count: u32) -> Option<Vec<u32>> {
    let node = model.iter().position(|free| free.len() as u32 >= count)?;
    Some(take_from(model, node, count))
}

fn next(model: &mut Model, count: u32) -> Vec<u32> {
    let mut taken = Vec::new();
    for node in 0..model.len() {
        let here = (model[node].len() as u32).min(count - taken.len() as u32);
        taken.extend(take_from(model, node, here));
    }
    taken
}

/// The node of each step, if each is on the first node with room that is not before that of the step before it.
fn ascending(model: &Model, steps: &[u32]) -> Option<Vec<usize>> {
    let mut rooms: Vec<u32> = model.iter().map(|free| free.len() as u32).collect();
    let mut node = 0;
    let mut nodes = Vec::new();
    for &step in steps {
        while *rooms.get(node)? < step {
            node += 1;
        }
        rooms[node] -= step;
        nodes.push(node);
    }
    Some(nodes)
}

fn cut(count: u32, step: u32) -> Vec<u32> {
    (0..count).step_by(step as usize).map(|start| step.min(count - start)).collect()
}

fn stepped(model: &mut Model, count: u32, sizes: &[u32], ascends: bool) -> Vec<u32> {
    if let Some(taken) = together(model, count) {
        return taken;
    }
    let common = (1..=count).find(|multiple| sizes.iter().all(|size| multiple % size == 0));
    let mut tried: Vec<u32> = sizes.iter().copied().chain(common).filter(|&size| size > 1).collect();
    tried.sort_unstable();
    for &step in tried.iter().rev() {
        let steps = cut(count, step);
        if let Some(nodes) = ascending(model, &steps) {
            return nodes.into_iter().zip(steps).flat_map(|(node, step)| take_from(model, node, step)).collect();
        }
    }
    for &step in tried.iter().rev().filter(|_| !ascends) {
        let (mut whole, mut others, mut rest) = (Vec::new(), Vec::new(), count);
        for (node, free) in model.iter().enumerate() {
            let share = (free.len() as u32).min(rest) / step * step;
            rest -= share;
            if share > 0 { whole.push((node, share)) } else { others.push(node) }
        }
        if whole.is_empty() || others.iter().map(|&node| model[node].len() as u32).sum::<u32>() < rest {
            continue;
        }
        for node in others {
            let share = (model[node].len() as u32).min(rest);
            rest -= share;
            whole.push((node, share));
        }
        return whole.into_iter().flat_map(|(node, share)| take_from(model, node, share)).collect();
    }
    next(model, count)
}

/// What a case takes in turn.
#[derive(Clone, Debug)]
enum Wanted {
    Next(u32),
    Packed(u32),
    Bundles(Vec<u32>, u32),
    Steps(u32, Vec<u32>, bool),
    Lists(Vec<Vec<(u32, u32)>>),
    Spread(Vec<u32>, bool),
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let sizes = || prop::collection::vec(1_u32..7, 1..4);
    prop_oneof![
        (0_u32..12).prop_map(Wanted::Next),
        (0_u32..12).prop_map(Wanted::Packed),
        (sizes(), 1_u32..4).prop_map(|(sizes, rounds)| Wanted::Bundles(sizes, rounds)),
        (1_u32..16, sizes(), any::<bool>()).prop_map(|(count, sizes, ascends)| Wanted::Steps(count, sizes, ascends)),
        (prop::collection::vec((0_u32..3, 1_u32..5), 1..4), sizes()).prop_map(|(first, second)| {
            // Every list has as many accelerators.
            let count: u32 = first.iter().map(|(times, size)| times * size).sum();
            let mut rest = count;
            let mut other = Vec::new();
            for size in second {
                other.push((u32::from(size <= rest), size));
                rest -= if size <= rest { size } else { 0 };
            }
            other.push((rest, 1));
            Wanted::Lists(vec![first, other])
        }),
        (sizes(), any::<bool>()).prop_map(|(sizes, strict)| Wanted::Spread(sizes, strict)),
    ]
}

/// Take from the model; on failure, the bundle without room.
fn expected(model: &mut Model, wanted: &Wanted) -> Result<Vec<u32>, Short> {
    let count = count_of(wanted);
    if count > left(model) {
        return Err(Short { free: left(model), bundles: 0, size: None });
    }
    match wanted {
        Wanted::Next(count) => Ok(next(model, *count)),
        Wanted::Packed(count) => Ok(together(model, *count).unwrap_or_else(|| next(model, *count))),
        Wanted::Bundles(sizes, rounds) => {
            let mut taken = Vec::new();
            for (bundles, &size) in (0..).zip(sizes.repeat(*rounds as usize).iter()) {
                let free = left(model);
                taken.extend(together(model, size).ok_or(Short { free, bundles, size: Some(size) })?);
            }
            Ok(taken)
        }
        Wanted::Steps(count, sizes, ascends) => Ok(stepped(model, *count, sizes, *ascends)),
        Wanted::Lists(lists) => {
            for list in lists {
                let steps: Vec<u32> =
                    list.iter().flat_map(|&(times, size)| std::iter::repeat_n(size, times as usize)).collect();
                if let Some(nodes) = ascending(model, &steps) {
                    let pairs = nodes.into_iter().zip(steps);
                    return Ok(pairs.flat_map(|(node, step)| take_from(model, node, step)).collect());
                }
            }
            Ok(next(model, count))
        }
        Wanted::Spread(sizes, strict) => {
            let (mut taken, mut used) = (Vec::new(), Vec::new());
            for (bundles, &size) in (0..).zip(sizes) {
                let has_room = |node: &usize| model[*node].len() as u32 >= size;
                let apart = (0..model.len()).filter(has_room).find(|node| !used.contains(node));
                let any = (0..model.len()).find(has_room).filter(|_| !strict);
                let short = Short { free: left(model), bundles, size: Some(size) };
                let node = apart.or(any).ok_or(short)?;
                used.push(node);
                taken.extend(take_from(model, node, size));
            }
            Ok(taken)
        }
    }
}

fn count_of(wanted: &Wanted) -> u32 {
    match wanted {
        Wanted::Next(count) | Wanted::Packed(count) | Wanted::Steps(count, ..) => *count,
        Wanted::Bundles(sizes, rounds) => sizes.iter().sum::<u32>() * rounds,
        Wanted::Lists(lists) => lists[0].iter().map(|(times, size)| times * size).sum(),
        Wanted::Spread(sizes, _) => sizes.iter().sum(),
    }
}

fn take(free: &mut Free, wanted: &Wanted) -> Result<Taken, Short> {
    let fill = match wanted {
        Wanted::Next(_) => Fill::Next,
        Wanted::Packed(_) => Fill::Packed,
        Wanted::Bundles(sizes, _) => Fill::Bundles(sizes),
        Wanted::Steps(_, sizes, ascending) => Fill::Steps { sizes, ascending: *ascending },
        Wanted::Lists(lists) => Fill::Lists(lists),
        Wanted::Spread(sizes, strict) => Fill::Spread { sizes, strict: *strict },
    };
    free.take(count_of(wanted), fill)
}

fn listed(taken: &Taken) -> Vec<u32> {
    taken.ranges().iter().flat_map(|range| range.first()..=range.last()).collect()
}

/// The node and the local index of each accelerator.
fn places(inventory: &Inventory) -> Vec<(NodeRank, u32)> {
    let nodes = (0..inventory.num_nodes()).map(NodeRank);
    nodes.flat_map(|node| (0..inventory.num_accelerators(node)).map(move |index| (node, index))).collect()
}

proptest! {
    #[test]
    fn accelerators_are_taken_as_by_hand(
        counts in prop::collection::vec(0_u32..7, 1..6),
        holes in prop::collection::btree_set(0_u32..20, 0..6),
        order in prop::collection::vec(any::<u32>(), 6),
        reordered in any::<bool>(),
        several in prop::collection::vec(wanted(), 1..7),
    ) {
        let inventory = inventory(&counts);
        let excluded: RankSet = holes.iter().copied().collect();
        let mut nodes: Vec<u32> = (0..counts.len() as u32).collect();
        if reordered {
            nodes.sort_by_key(|&node| order[node as usize]);
        }
        let free_of = |node: &u32| {
            let all = inventory.accelerators_of(NodeRank(*node));
            let ranks = all.into_iter().flat_map(|all| all.first()..=all.last());
            ranks.filter(|rank| !holes.contains(rank)).collect()
        };
        let mut model: Model = nodes.iter().map(free_of).collect();
        let mut free = Free::new(&inventory, &excluded, reordered.then_some(&nodes));
        for wanted in several {
            let found = take(&mut free, &wanted);
            prop_assert_eq!(found.map(|taken| listed(&taken)), expected(&mut model, &wanted));
            prop_assert_eq!(free.left(), left(&model));
            for size in 1..4 {
                prop_assert_eq!(free.bundles(size), model.iter().map(|free| free.len() as u32 / size).sum::<u32>());
            }
        }
    }

    #[test]
    fn what_was_taken_is_a_list(
        counts in prop::collection::vec(0_u32..5, 1..7),
        ranges in prop::collection::vec((0_u32..30, 1_u32..9), 0..6),
        more in prop::collection::vec((0_u32..30, 1_u32..9), 0..3),
        bounds in (0_u32..40, 0_u32..40),
        each in 1_u32..6,
    ) {
        let inventory = inventory(&counts);
        let places = places(&inventory);
        let total = places.len() as u32;
        let inside = |&(first, count): &(u32, u32)| RankRange::new(first, (first + count - 1).min(total.checked_sub(1)?));
        let taken = Taken::from_ranges(ranges.iter().filter_map(inside)).expect("few");
        let other = Taken::from_ranges(more.iter().filter_map(inside)).expect("few");
        let list = listed(&taken);
        prop_assert_eq!(taken.len() as usize, list.len());
        prop_assert_eq!(listed(&taken.then(&other).expect("few")), [list.clone(), listed(&other)].concat());
        let (start, end) = (bounds.0.min(taken.len()) as usize, bounds.1.min(taken.len()) as usize);
        prop_assert_eq!(listed(&taken.slice(bounds.0..bounds.1)), list.get(start..end).unwrap_or_default());
        prop_assert!(taken.accelerators() == list.iter().copied().collect());

        let nodes: Vec<NodeRank> = list.iter().map(|&rank| places[rank as usize].0).collect();
        prop_assert!(taken.nodes(&inventory, each).eq(nodes.iter().copied().step_by(each as usize)));
        let torn = nodes.chunks_exact(each as usize).zip(0..).find(|(chunk, _)| chunk.first() != chunk.last());
        let torn = torn.map(|(chunk, index)| Torn { chunk: index, first: chunk[0], last: chunk[chunk.len() - 1] });
        prop_assert_eq!(taken.torn(&inventory, each), torn);
        if !list.is_empty() && list.len().is_multiple_of(each as usize) {
            let chunks = taken.chunks(each).expect("whole");
            prop_assert_eq!(chunks.ranges(), taken.ranges());
        }
    }

    #[test]
    fn a_place_inverts_a_resource(counts in prop::collection::vec(0_u32..5, 1..7)) {
        let inventory = inventory(&counts);
        let places = places(&inventory);
        for (rank, &(node, index)) in (0..).zip(&places) {
            prop_assert_eq!(inventory.place(rank), Some((node, index)));
            prop_assert_eq!(inventory.resource(node, index), Some(rank));
        }
        prop_assert_eq!(inventory.place(places.len() as u32), None);
        prop_assert!((0..7).all(|node| inventory.resource(NodeRank(node), 5).is_none()));
        let sizes = inventory.nodes_by_size();
        let of_size = |size: &u32| (0..).zip(&counts).filter(|(_, count)| *count == size).map(|(node, _)| node).collect();
        prop_assert!(sizes.iter().all(|(size, nodes)| *nodes == of_size(size)));
        prop_assert!(counts.iter().all(|count| sizes.contains_key(count)));
    }

    #[test]
    fn the_most_crowded_accelerator_of_each_is_counted(
        several in prop::collection::vec(prop::collection::vec((0_u32..20, 1_u32..6), 0..4), 0..5),
    ) {
        let range = |&(first, count): &(u32, u32)| RankRange::counted(first, count);
        let lists: Vec<Taken> =
            several.iter().map(|ranges| Taken::from_ranges(ranges.iter().filter_map(range)).expect("few")).collect();
        let users = |rank: u32| lists.iter().filter(|list| list.accelerators().contains(rank)).count() as u32;
        let expected: Vec<u32> = lists.iter().map(|list| listed(list).into_iter().map(users).max().unwrap_or(0)).collect();
        prop_assert_eq!(Taken::most_users(&lists), expected);
    }

    #[test]
    fn nodes_are_used_in_turn(nodes in prop::collection::btree_set(0_u32..9, 0..5), count in 0_u32..20) {
        let set: RankSet = nodes.iter().copied().collect();
        let expected = (!nodes.is_empty()).then(|| nodes.iter().copied().cycle().take(count as usize).collect::<Vec<_>>());
        prop_assert_eq!(Taken::in_turn(&set, count).as_ref().map(listed), expected);
    }
}

#[test]
fn accelerators_are_taken_in_the_order_of_their_ids() {
    let ids = ["10", "GPU-b", "9", "GPU-a", "09", "8"].map(String::from).to_vec();
    let spec = rankplan_core::NodeSpec { accelerator_type: "NV_GPU".into(), accelerator_ids: ids };
    let inventory = Inventory::new(vec![(RankSet::first_ranks(2), spec)]).expect("two nodes");
    let mut free = Free::by_id(&inventory, &[2, 6].into_iter().collect(), Some(&[1, 0]));
    let taken = free.take(10, Fill::Next).expect("ten are free");
    assert_eq!(listed(&taken), [11, 8, 10, 9, 7, 5, 4, 0, 3, 1]);
}

#[test]
fn the_first_accelerators_of_some_nodes_are_free_whatever_is_excluded() {
    let mut free = Free::first_of(&inventory(&[8, 8, 4, 8]), 1..4, 6);
    assert_eq!((free.left(), free.bundles(4)), (16, 3));
    let taken = free.take(12, Fill::Bundles(&[6])).expect("two nodes have six");
    assert_eq!(listed(&taken), [8, 9, 10, 11, 12, 13, 20, 21, 22, 23, 24, 25]);
}
