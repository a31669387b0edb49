//! Requests as rows, compared with one request after the other.

#![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

use proptest::prelude::*;
use rankplan_core::amounts::{Amount, Amounts};
use rankplan_core::requests::{Bundle, Division, Kind, Naming, Row, runs_of as bundles_of};
use rankplan_core::{GroupNames, NodeOrder, NodeRun, NodeRuns, RankRange, Requests, Taken};

use crate::common::inventory;

#[allow(dead_code, reason = "other tests place on pools")]
mod common;

/// A request by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct One {
    component: &'static str,
    name: Option<String>,
    strategy: &'static str,
    order: Option<NodeOrder>,
    sizes: Vec<u32>,
    nodes: Vec<u32>,
}

fn runs_of(nodes: &[u32]) -> NodeRuns {
    let mut runs = NodeRuns::default();
    nodes.iter().for_each(|&node| runs.push(node, 1));
    runs
}

fn kind(component: &str, order: Option<NodeOrder>, sizes: &[u32]) -> Kind {
    let bundles = bundles_of(sizes.iter().map(|&size| (1, Bundle::from(size))));
    Kind { component: component.into(), strategy: Some("PACK".into()), optional: false, order, bundles }
}

impl One {
    fn row(&self) -> Row {
        Row {
            kind: Kind { strategy: Some(self.strategy.into()), ..kind(self.component, self.order, &self.sizes) },
            names: self.name.clone().map(GroupNames::Same),
            groups: 1,
            nodes: runs_of(&self.nodes),
        }
    }
}

fn listed(requests: &Requests) -> Vec<(Option<String>, Vec<u32>, Vec<u32>)> {
    let groups = (0..requests.len()).map(|number| requests.get(number).expect("a number below the length"));
    groups
        .map(|(row, group)| {
            let name = row.names.as_ref().map(|names| names.get(group));
            (name, row.kind.sizes().collect(), row.nodes_of(group).iter().map(|node| node.0).collect())
        })
        .collect()
}

fn ones() -> impl Strategy<Value = Vec<One>> {
    let name = prop_oneof![
        2 => Just(None),
        6 => (0_usize..3, 8_u32..12).prop_map(|(kind, number)| Some(match kind {
            0 => format!("a:{number}"),
            1 => format!("p{number}v:0"),
            _ => format!("p{}v:{}", number / 2, number % 2),
        })),
    ];
    let orders = [None, Some(NodeOrder::Text), Some(NodeOrder::Number), Some(NodeOrder::Rank)];
    let order = prop::sample::select(orders.to_vec());
    let strategy = prop::sample::select(vec!["PACK", "STRICT_PACK"]);
    let sizes = prop_oneof![Just(vec![1, 1]), Just(vec![1, 1]), Just(vec![2, 1, 1]), Just(vec![8])];
    let one = (0_usize..2, name, (order, strategy), sizes, prop::collection::vec(0_u32..4, 3), any::<bool>()).prop_map(
        |(component, name, (order, strategy), sizes, nodes, placed)| One {
            component: ["actor", "ref"][component],
            name,
            strategy,
            order,
            nodes: if placed { nodes[..sizes.len()].to_vec() } else { Vec::new() },
            sizes,
        },
    );
    // A request and those that count on after it.
    prop::collection::vec((one, 1_u32..7), 0..5).prop_map(|starts| {
        let mut found = Vec::new();
        for (one, times) in starts {
            for step in 0..times {
                let name = one.name.as_ref().map(|name| match name.strip_prefix("a:") {
                    Some(number) => format!("a:{}", number.parse::<u32>().expect("a number") + step),
                    None => {
                        let end = name.find('v').expect("it has one");
                        format!("p{}{}", name[1..end].parse::<u32>().expect("a number") + step, &name[end..])
                    }
                });
                found.push(One { name, ..one.clone() });
            }
        }
        found
    })
}

/// The pools by the rule: neighbours among those that are sorted, with the same key.
fn pools(ones: &[One]) -> Vec<(NodeOrder, Vec<u32>)> {
    let mut found: Vec<(NodeOrder, Vec<u32>)> = Vec::new();
    let mut known = None;
    for (number, one) in (0..).zip(ones) {
        let Some(order) = one.order.filter(|_| !one.nodes.is_empty()) else { continue };
        let name = one.name.as_ref().map(|name| name.trim_end_matches(|digit: char| digit.is_ascii_digit()));
        let key = match (order, name) {
            (NodeOrder::Rank, _) => Some((order, "", "")),
            // Nothing can be sorted in a group that must be on one node.
            (_, None) if one.strategy == "STRICT_PACK" => Some((order, one.component, "")),
            (_, None) => None,
            (_, Some(name)) => Some((order, one.component, name)),
        };
        if key.is_some() && key == known {
            found.last_mut().expect("there was one").1.push(number);
        } else {
            found.push((order, vec![number]));
        }
        known = key;
    }
    found
}

proptest! {
    #[test]
    fn rows_are_the_requests_one_by_one(ones in ones(), cuts in prop::collection::vec(0_usize..30, 0..4)) {
        let mut requests = Requests::default();
        ones.iter().for_each(|one| requests.push(one.row()));
        prop_assert_eq!(requests.len() as usize, ones.len());
        let expected: Vec<_> = ones.iter().map(|one| (one.name.clone(), one.sizes.clone(), one.nodes.clone())).collect();
        prop_assert_eq!(listed(&requests), expected.clone());
        prop_assert!(requests.get(requests.len()).is_none());

        // However they are added, rows are the same.
        let mut ends: Vec<u32> = cuts.iter().map(|&cut| cut.min(ones.len()) as u32).collect();
        ends.sort_unstable();
        let starts = [vec![0], ends.clone()].concat();
        ends.push(ones.len() as u32);
        let mut joined = Requests::default();
        for (&start, &end) in starts.iter().zip(&ends) {
            let part = requests.slice(start..end);
            prop_assert_eq!(listed(&part), &expected[start as usize..end as usize]);
            joined.extend(&part);
        }
        prop_assert_eq!(&joined, &requests);

        let found: Vec<_> = requests.pools().into_iter()
            .map(|pool| (pool.order, pool.requests.into_iter().flatten().collect())).collect();
        prop_assert_eq!(found, pools(&ones));
    }

    #[test]
    fn node_runs_are_a_list_of_nodes(
        parts in prop::collection::vec((0_u32..6, 1_u32..4, 1_u32..4), 0..8),
        bounds in (0_u32..40, 0_u32..40),
    ) {
        let nodes: Vec<u32> = parts.iter()
            .flat_map(|&(first, nodes, each)| (first..first + nodes).flat_map(move |node| std::iter::repeat_n(node, each as usize)))
            .collect();
        let mut runs = NodeRuns::default();
        parts.iter().for_each(|&(first, nodes, each)| runs.push_run(NodeRun { first, nodes, each }));
        prop_assert_eq!(&runs, &runs_of(&nodes));
        prop_assert_eq!(runs.iter().map(|node| node.0).collect::<Vec<_>>(), nodes.clone());
        prop_assert_eq!(runs.len() as usize, nodes.len());
        for at in 0..45 {
            prop_assert_eq!(runs.get(at).map(|node| node.0), nodes.get(at as usize).copied());
        }
        let (start, end) = (bounds.0.min(runs.len()), bounds.1.min(runs.len()));
        let part = nodes.get(start as usize..end as usize).unwrap_or_default();
        prop_assert_eq!(&runs.slice(bounds.0..bounds.1), &runs_of(part));
    }

    #[test]
    fn groups_on_taken_accelerators_are_cut_from_them(
        counts in prop::collection::vec(0_u32..6, 1..6),
        bundles in prop::collection::vec(1_u32..4, 1..3),
        each in prop::option::of(1_u32..7),
        naming in 0_usize..4,
        ranges in prop::collection::vec((0_u32..25, 1_u32..9), 1..4),
    ) {
        let inventory = inventory(&counts);
        let total: u32 = counts.iter().sum();
        let inside = ranges.iter().filter_map(|&(first, count)| RankRange::new(first, (first + count - 1).min(total.checked_sub(1)?)));
        let taken = Taken::from_ranges(inside).expect("few");
        let naming = [Naming::Unnamed, Naming::Same("one"), Naming::Numbered("x1:"), Naming::Pools("p", "v:", 2)][naming];
        let amounts = Amounts { cpus: Some(Amount::new(2.5)), ..Amounts::default() };
        let bundle = |accelerators: &u32| Bundle { accelerators: *accelerators, amounts: amounts.clone() };
        let wanted: Vec<Bundle> = bundles.iter().map(bundle).collect();
        let division = Division { bundles: &wanted, per_group: each };
        let found = Requests::of(&inventory, &taken, &kind("actor", None, &[]), division, naming);

        let ranks: Vec<u32> = taken.ranges().iter().flat_map(|range| range.first()..=range.last()).collect();
        let mut expected = Vec::new();
        for (number, group) in ranks.chunks_exact(each.unwrap_or(taken.len()).max(1) as usize).enumerate() {
            let (mut sizes, mut nodes, mut start) = (Vec::new(), Vec::new(), 0);
            for size in bundles.iter().cycle() {
                let Some(&rank) = group.get(start) else { break };
                sizes.push((*size).min((group.len() - start) as u32));
                nodes.push(inventory.place(rank).expect("it is one of them").0.0);
                start += *size as usize;
            }
            let name = match naming {
                Naming::Unnamed => None,
                Naming::Same(name) => Some(name.to_owned()),
                Naming::Numbered(name) => Some(format!("{name}{number}")),
                Naming::Pools(..) => Some(format!("p{}v:{}", number / 2, number % 2)),
            };
            expected.push((name, sizes, nodes));
        }
        prop_assert_eq!(listed(&found), expected);
        // Each bundle has all amounts, also one that has fewer accelerators.
        prop_assert!(found.rows().iter().flat_map(|row| row.kind.each()).all(|bundle| bundle.amounts == amounts));
    }
}

#[test]
fn ten_thousand_groups_are_one_row() {
    let inventory = inventory(&[8; 1000]);
    let all = Taken::from_ranges(RankRange::new(0, 7999)).expect("few");
    let kind = kind("actor", Some(NodeOrder::Text), &[]);
    for (per_group, naming) in
        [(8, Naming::Numbered("pool_8:")), (2, Naming::Unnamed), (8, Naming::Pools("pool_", "v_8:", 1))]
    {
        let division = Division { bundles: &[Bundle::from(1)], per_group: Some(per_group) };
        let found = Requests::of(&inventory, &all, &kind, division, naming);
        assert_eq!((found.len(), found.rows().len()), (8000 / per_group, 1));
        assert_eq!(found.rows()[0].nodes.runs(), [NodeRun { first: 0, nodes: 1000, each: 8 }]);
    }
}

#[test]
fn a_text_that_ends_with_a_digit_is_no_text_before_a_number() {
    let row = Row {
        kind: kind("actor", None, &[1]),
        names: Some(GroupNames::Numbered { before: "x1".into(), first: 8, after: String::new() }),
        groups: 4,
        nodes: NodeRuns::default(),
    };
    let mut requests = Requests::default();
    requests.push(row);
    let names: Vec<_> = listed(&requests).into_iter().filter_map(|(name, ..)| name).collect();
    assert_eq!(names, ["x18", "x19", "x110", "x111"]);
}
