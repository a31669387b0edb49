//! Laws of slots, groups, spans, rails and weight maps; the model expands every group into a list of slots.

#![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rankplan_core::groups::unchanged::{Placed, unchanged};
use rankplan_core::groups::weights::Side;
use rankplan_core::{
    Chunks, Domains, Groups, Inventory, Kind, Layout, NodeRank, Order, Parallel, ProcessRank, Rule, SlotSets, Slots,
    Table,
};
use rankplan_core::{WeightMap, apply};

use crate::common::{inventory, pool};

mod common;

/// Nodes, and processes with accelerators in any order; a process may share an accelerator with another one.
fn tables() -> impl Strategy<Value = (Inventory, Table)> {
    let nodes = prop::collection::vec(prop::sample::select(vec![2_u32, 4, 6, 8]), 1..6);
    let shapes = (nodes, 1..5_u32, 0..4_u8, any::<prop::sample::Index>(), any::<u64>());
    shapes
        .prop_map(|(nodes, per_process, how, start, seed)| {
            let inventory = inventory(&nodes);
            let total: u32 = nodes.iter().sum();
            let per_process = per_process.min(total);
            let mut ranks: Vec<u32> = (0..total).collect();
            match how {
                0 => {}
                1 => ranks.rotate_left(start.index(total as usize)),
                2 => ranks.sort_by_key(|&rank| (u64::from(rank) * 2_654_435_761 + seed) % 1_000_003),
                _ => ranks.extend_from_within(..),
            }
            ranks.truncate(ranks.len() / per_process as usize * per_process as usize);
            let rule = Chunks::from_ranks(&ranks, per_process).expect("chunks");
            let table = apply(Rule::Chunks(&rule), &pool(&nodes));
            (inventory, table)
        })
        .prop_filter_map("a process that has a resource twice", |(inventory, table)| Some((inventory, table.ok()?)))
}

type Place = (u32, Option<u16>);

/// The node and the accelerator of every slot, and the slots of every process.
fn expanded(table: &Table) -> (Vec<Place>, Vec<Vec<u32>>) {
    let rows: Vec<_> = (0..table.len()).filter_map(|rank| table.row(ProcessRank(rank))).collect();
    let mut users: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    for row in &rows {
        row.places().for_each(|place| _ = users.entry(place).or_default().insert(row.rank.0));
    }
    let (mut places, mut of) = (Vec::new(), Vec::new());
    for row in &rows {
        let shared = row.places().any(|place| users[&place].len() > 1);
        let count = if shared { 1 } else { row.devices.len() };
        of.push((places.len() as u32..(places.len() + count) as u32).collect());
        places.extend(row.places().take(count).map(|(node, device)| (node.0, Some(device))));
    }
    (places, of)
}

fn sizes() -> impl Strategy<Value = Parallel> {
    let size = || prop::sample::select(vec![1_u32, 1, 2, 3, 4]);
    let orders = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "dp-pp-tp-ep-cp", "pp-dp-ep-cp-tp"];
    let order = prop::sample::select(orders.to_vec());
    (size(), size(), size(), size(), size(), order).prop_map(|(tp, cp, ep, etp, pp, order)| {
        let order = Order::parse(order).expect("a permutation");
        Parallel { tp, cp, ep, etp, pp, order, ..Parallel::default() }
    })
}

fn members(groups: Groups) -> Vec<Vec<u32>> {
    (0..groups.len()).filter_map(|index| groups.get(index)).map(|group| group.slots().collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_the_devices_of_the_processes((_, table) in tables()) {
        let slots = Slots::of(&table);
        let (places, of) = expanded(&table);
        prop_assert_eq!(slots.len() as usize, places.len());
        for (slot, &(node, device)) in (0..).zip(&places) {
            let found = slots.place(slot);
            prop_assert_eq!((found.0.0, found.1), (node, device));
        }
        for (rank, own) in (0..).zip(&of) {
            prop_assert_eq!(&slots.of_process(ProcessRank(rank)).expect("a process").collect::<Vec<_>>(), own);
            prop_assert!(own.iter().all(|&slot| slots.process_of(slot).0 == rank));
        }
    }

    #[test]
    fn slot_sets_are_those_of_equal_nodes_processes_and_coordinates((_, table) in tables(), sizes in sizes()) {
        let slots = Slots::of(&table);
        let all: Vec<u32> = (0..slots.len()).collect();
        let by_node = SlotSets::by_node(&slots);
        for &slot in &all {
            prop_assert_eq!(by_node.of(slot), Some(slots.place(slot).0.0));
        }
        for node in 0..by_node.len() {
            let there: Vec<_> = all.iter().copied().filter(|&slot| slots.place(slot).0.0 == node).collect();
            prop_assert_eq!(by_node.get(node), &there[..]);
        }
        let by_process = SlotSets::by_process(&slots, 2);
        prop_assert!(all.iter().all(|&slot| by_process.of(slot) == Some(slots.process_of(slot).0 / 2)));
        let Ok(layout) = Layout::new(&sizes, &slots) else { return Ok(()) };
        let kinds = [Kind::Tp, Kind::Pp, Kind::Ep];
        let key = |slot| layout.coordinates(slot).filter(|(kind, _)| kinds.contains(kind)).collect::<Vec<_>>();
        let by_coordinates = SlotSets::by_coordinates(&layout, &kinds);
        let mut known = Vec::new();
        for &slot in &all {
            let own = key(slot);
            let set = known.iter().position(|other| *other == own).unwrap_or_else(|| {
                known.push(own);
                known.len() - 1
            });
            prop_assert_eq!(by_coordinates.of(slot), Some(set as u32));
        }
    }

    #[test]
    fn sets_of_data_groups_share_no_process((_, table) in tables(), sizes in sizes(), shards in 1..3_u32) {
        let slots = Slots::of(&table);
        let Ok(layout) = Layout::new(&sizes, &slots) else { return Ok(()) };
        let groups = layout.groups(Kind::Dp);
        let sets = SlotSets::by_data(&layout, &slots, shards);
        // The least multiple of the shards with which no process has slots of two sets, else all.
        let first_group = |slot| {
            let own = slots.of_process(slots.process_of(slot)).expect("a process");
            own.map(|slot| groups.position(slot)).min().expect("a slot")
        };
        let torn = |size: u32| (0..slots.processes()).any(|rank| {
            let own: BTreeSet<_> =
                slots.of_process(ProcessRank(rank)).expect("a process").map(|slot| groups.position(slot)).collect();
            let (first, last) = (own.first().expect("a slot"), own.last().expect("a slot"));
            first / size != last / size
        });
        let size = (1..groups.size())
            .find(|size| size.is_multiple_of(shards) && groups.size().is_multiple_of(*size) && !torn(*size))
            .unwrap_or_else(|| groups.size());
        for slot in 0..slots.len() {
            prop_assert_eq!(sets.of(slot), Some(first_group(slot) / size));
        }
    }

    #[test]
    fn unchanged_slots_are_equal_on_nodes_of_equal_slots(
        (inventory, before) in tables(), (_, other) in tables(), sizes in sizes(),
        more in prop::option::of(sizes()), swapped in any::<bool>()
    ) {
        // The same rows on other nodes, the same on the same ones, or other rows, if the nodes allow.
        let after = if other.fits(&inventory).is_ok() { &other } else { &before };
        let mut nodes: Vec<_> = (0..inventory.num_nodes()).map(Some).collect();
        if swapped {
            nodes.reverse();
        }
        let (old, new) = (Slots::of(&before), Slots::of(after));
        let (Ok(old_layout), Ok(new_layout)) = (Layout::new(&sizes, &old), Layout::new(&more.unwrap_or(sizes), &new)) else {
            return Ok(());
        };
        let (old_nodes, new_nodes) = (SlotSets::by_node(&old), SlotSets::by_node(&new));
        let placed = |table, slots, layout, by_node| Placed { table, inventory: &inventory, slots, layout, by_node };
        let found = unchanged(
            placed(&before, &old, &old_layout, &old_nodes),
            placed(after, &new, &new_layout, &new_nodes),
            &nodes,
        );
        let place = |(node, index): (NodeRank, Option<u16>)| (nodes[node.0 as usize], index);
        let devices = |table: &Table, rank: ProcessRank| {
            table.row(rank).map(|row| row.places().collect::<Vec<_>>()).unwrap_or_default()
        };
        let is_same = |slot: u32| {
            let (rank, now) = (old.process_of(slot), new.process_of(slot));
            let moved: Vec<_> =
                devices(&before, rank).into_iter().map(|(node, index)| place((node, Some(index)))).collect();
            let present: Vec<_> =
                devices(after, now).into_iter().map(|(node, index)| (Some(node.0), Some(index))).collect();
            let kinds = [inventory.spec(old.place(slot).0), inventory.spec(new.place(slot).0)];
            rank == now
                && old.of_process(rank) == new.of_process(now)
                && old_layout.coordinates(slot).eq(new_layout.coordinates(slot))
                && place(old.place(slot)) == (Some(new.place(slot).0.0), new.place(slot).1)
                && moved == present
                && kinds[0] == kinds[1]
        };
        for slot in 0..old.len().min(new.len()) {
            let node = new.place(slot).0.0;
            let old_node = nodes.iter().position(|other| *other == Some(node)).expect("a node") as u32;
            let there = new_nodes.get(node);
            let all = old_nodes.get(old_node) == there
                && there.iter().all(|&other| other < old.len() && is_same(other));
            prop_assert_eq!(found.contains(slot), all, "slot {}", slot);
        }
    }

    #[test]
    fn groups_of_a_kind_partition_the_slots((_, table) in tables(), sizes in sizes()) {
        let slots = Slots::of(&table);
        let Ok(layout) = Layout::new(&sizes, &slots) else { return Ok(()) };
        let mut named = BTreeSet::new();
        for kind in Kind::ALL {
            let groups = layout.groups(kind);
            let all = members(groups);
            prop_assert!(all.iter().all(|group| group.len() == layout.size(kind) as usize));
            let mut every: Vec<_> = all.iter().flatten().copied().collect();
            every.sort_unstable();
            prop_assert!(every.into_iter().eq(0..slots.len()));
            for (index, group) in (0..).zip(&all) {
                for (position, &slot) in (0..).zip(group) {
                    prop_assert_eq!((groups.index_of(slot), groups.position(slot)), (index, position));
                    // All coordinates of the same kind of layout but one are those of the first slot.
                    let others = |slot| layout.mesh().into_iter().map(|(other, _)| (other, layout.groups(other).position(slot)))
                        .filter(|&(other, _)| other != kind).collect::<Vec<_>>();
                    if layout.mesh().iter().any(|&(other, _)| other == kind) {
                        prop_assert_eq!(others(slot), others(group[0]));
                    }
                }
            }
        }
        for slot in 0..slots.len() {
            let index = layout.mesh().into_iter().fold(0, |index, (kind, size)| index * size + layout.groups(kind).position(slot));
            let reachable = layout.mesh().iter().map(|&(_, size)| size).product::<u32>();
            prop_assert!(index < reachable && reachable == slots.len());
            named.insert(layout.coordinates(slot).collect::<Vec<_>>());
        }
        prop_assert_eq!(named.len(), slots.len() as usize);
    }

    #[test]
    fn spans_are_counted_as_if_expanded((_, table) in tables(), step in 1..9_u32, size in 1..9_u32) {
        let slots = Slots::of(&table);
        let (places, _) = expanded(&table);
        let sizes = Parallel { tp: step, cp: size, ..Parallel::default() };
        let Ok(layout) = Layout::new(&sizes, &slots) else { return Ok(()) };
        for kind in Kind::ALL {
            let all = members(layout.groups(kind));
            let crosses = |group: &Vec<u32>| group.iter().any(|&slot| places[slot as usize].0 != places[group[0] as usize].0);
            let spans = slots.spans(layout.groups(kind));
            prop_assert_eq!(spans.crossing as usize, all.iter().filter(|group| crosses(group)).count());
            prop_assert_eq!(spans.within + spans.crossing, layout.groups(kind).len());
            prop_assert_eq!(spans.first_crossing.map(|index| index as usize), all.iter().position(crosses));
        }
    }

    #[test]
    fn spans_of_domains_are_counted_as_if_expanded(
        (nodes, table) in tables(), step in 1..9_u32, size in 1..9_u32, ids in prop::collection::vec(0..4_u32, 40)
    ) {
        let slots = Slots::of(&table);
        let (places, _) = expanded(&table);
        let Ok(layout) = Layout::new(&Parallel { tp: step, cp: size, ..Parallel::default() }, &slots) else { return Ok(()) };
        let ids = &ids[..nodes.num_nodes() as usize];
        let domains = Domains::new(ids.iter().copied());
        for (node, &id) in (0..).zip(ids) {
            prop_assert_eq!(domains.of(NodeRank(node)), Some(id));
        }
        prop_assert_eq!(domains.of(NodeRank(nodes.num_nodes())), None);
        let domain = |slot: u32| ids[places[slot as usize].0 as usize];
        for kind in Kind::ALL {
            let all = members(layout.groups(kind));
            let crosses = |group: &Vec<u32>| group.iter().any(|&slot| domain(slot) != domain(group[0]));
            let spans = slots.nodes().in_domains(&domains).spans(layout.groups(kind));
            prop_assert_eq!(spans.crossing as usize, all.iter().filter(|group| crosses(group)).count());
            prop_assert_eq!(spans.within + spans.crossing, layout.groups(kind).len());
            prop_assert_eq!(spans.first_crossing.map(|index| index as usize), all.iter().position(crosses));
        }
    }

    #[test]
    fn rails_are_counted_as_if_expanded((nodes, table) in tables(), step in 1..9_u32, pp in 1..4_u32) {
        let slots = Slots::of(&table);
        let (places, _) = expanded(&table);
        let Ok(layout) = Layout::new(&Parallel { tp: step, pp, ..Parallel::default() }, &slots) else { return Ok(()) };
        let groups = layout.groups(Kind::Dp);
        let leaves = |group: &Vec<u32>| {
            let mut on_node: BTreeMap<u32, BTreeSet<_>> = BTreeMap::new();
            group.iter().map(|&slot| places[slot as usize]).for_each(|(node, device)| _ = on_node.entry(node).or_default().insert(device));
            let mut equal: BTreeMap<usize, Vec<BTreeSet<_>>> = BTreeMap::new();
            for (node, devices) in on_node {
                equal.entry(nodes.spec(NodeRank(node)).expect("a node").accelerator_ids.len()).or_default().push(devices);
            }
            equal.into_values().any(|sets| !sets.iter().any(|one| sets.iter().all(|other| one.is_superset(other))))
        };
        let all = members(groups);
        let rails = slots.rails(groups, &nodes);
        prop_assert_eq!(rails.mismatched as usize, all.iter().filter(|group| leaves(group)).count());
        prop_assert_eq!(rails.first.map(|index| index as usize), all.iter().position(leaves));
        prop_assert_eq!(slots.rail_warning(&layout, &nodes, "actor").is_some(), rails.mismatched > 0);
    }

    #[test]
    fn every_receiver_has_one_sender_and_senders_are_balanced(
        (nodes, table) in tables(), (_, other) in tables(), sizes in sizes(), tp in 1..5_u32
    ) {
        let _ = nodes;
        let (from, to) = (Slots::of(&table), Slots::of(&other));
        let (Ok(one), Ok(two)) = (Layout::new(&sizes, &from), Layout::new(&Parallel { tp, ..Parallel::default() }, &to)) else {
            return Ok(());
        };
        let sender = Side { name: "actor", slots: &from, layout: &one };
        let map = match WeightMap::new(sender, Side { name: "rollout", slots: &to, layout: &two }) {
            Ok(map) => map,
            Err(fault) => {
                prop_assert_eq!(fault.code.slug(), "no-weight-sender");
                prop_assert!(sizes.tp % tp != 0 && sizes.tp != 1);
                return Ok(());
            }
        };
        let lists: Vec<_> = (0..map.senders()).map(|sender| map.receivers_of(sender)).collect();
        let mut all: Vec<_> = lists.iter().flatten().copied().collect();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..map.receivers()));
        let (fewest, most) = (lists.iter().map(Vec::len).min(), lists.iter().map(Vec::len).max());
        prop_assert!(most.unwrap_or(0) - fewest.unwrap_or(0) <= 1);
        for (sender, receivers) in (0..).zip(&lists) {
            prop_assert!(receivers.is_sorted());
            for &receiver in receivers {
                prop_assert_eq!(map.sender_of(receiver), Some(sender));
                let part = two.groups(Kind::Tp).position(receiver);
                let share = (sizes.tp / tp).max(1);
                prop_assert!(sizes.tp == 1 || one.groups(Kind::Tp).position(sender) / share == part);
            }
        }
    }
}
