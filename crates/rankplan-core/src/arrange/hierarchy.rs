//! The domains of nodes at every level, and the order of the nodes through them.
//!
//! A level is a label key, outermost first. The domain of a node is the tuple of its labels down to a level, so equal labels in
//! two outer domains are two domains. A node without a label at a level is a domain of its own there and sorts last.

use crate::diagnostic::{Code, Diagnostic};

/// Stands for a missing label of a node at a level.
pub const UNKNOWN: u32 = u32::MAX;

/// The domains of nodes `0..n`, numbered from 0 at every level in the order of [`Hierarchy::order`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Nodes, depth first through the levels.
    order: Vec<u32>,
    /// By level and node.
    domains: Vec<Vec<u32>>,
    /// By level and domain: where it starts in `order`; the last entry is the number of nodes.
    starts: Vec<Vec<u32>>,
}

impl Hierarchy {
    /// The domains of nodes with these labels: by level, outermost first, and by node, the rank of its label in the order of
    /// labels, or [`UNKNOWN`].
    ///
    /// # Errors
    /// `invalid-inventory` if a level does not have one label per node.
    pub fn new(nodes: u32, labels: &[Vec<u32>]) -> Result<Self, Diagnostic> {
        if let Some(level) = labels.iter().position(|column| column.len() != nodes as usize) {
            let message = format!("level {level} has {} labels for {nodes} nodes", labels[level].len());
            return Err(Diagnostic::new(Code::InvalidInventory, message).help("pass one label per node and level"));
        }
        let mut order: Vec<u32> = (0..nodes).collect();
        order.sort_by(|&a, &b| {
            let keys = |node: u32| labels.iter().map(move |column| column[node as usize]);
            // A label that is unknown makes a node a domain of its own, whatever its inner labels.
            for (one, other) in keys(a).zip(keys(b)) {
                if one != other || one == UNKNOWN {
                    return one.cmp(&other).then(a.cmp(&b));
                }
            }
            a.cmp(&b)
        });
        let mut domains = vec![vec![0; nodes as usize]; labels.len()];
        let mut starts = vec![Vec::new(); labels.len()];
        let mut last: Option<u32> = None;
        for (position, &node) in (0..).zip(&order) {
            let mut new = last.is_none();
            for (level, column) in labels.iter().enumerate() {
                let label = column[node as usize];
                new |= label == UNKNOWN || last.is_some_and(|last| column[last as usize] != label);
                if new {
                    starts[level].push(position);
                }
                domains[level][node as usize] = starts[level].len() as u32 - 1;
            }
            last = Some(node);
        }
        starts.iter_mut().for_each(|starts| starts.push(nodes));
        Ok(Hierarchy { order, domains, starts })
    }

    /// The number of levels.
    pub fn levels(&self) -> usize {
        self.domains.len()
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        self.order.len() as u32
    }

    /// The nodes, depth first through the levels; within an innermost domain by their own numbers.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Whether the nodes of the first list come before those of the second one in order, node rank by node rank.
    pub fn earlier(&self, one: &[Option<u32>], other: &[Option<u32>]) -> bool {
        let first = one.iter().zip(other).find(|(one, other)| one != other);
        let Some((Some(one), Some(other))) = first else { return false };
        let place = |node: u32| (self.levels().checked_sub(1).map(|inner| self.of(inner, node)), node);
        place(*one) < place(*other)
    }

    /// The domain of a node at a level.
    pub fn of(&self, level: usize, node: u32) -> u32 {
        self.domains[level][node as usize]
    }

    /// The number of domains at a level.
    pub fn count(&self, level: usize) -> u32 {
        self.starts[level].len() as u32 - 1
    }

    /// The number of nodes of a domain.
    pub fn size(&self, level: usize, domain: u32) -> u32 {
        self.nodes_of(level, domain).len() as u32
    }

    /// The nodes of a domain, in order.
    pub fn nodes_of(&self, level: usize, domain: u32) -> &[u32] {
        let starts = &self.starts[level];
        &self.order[starts[domain as usize] as usize..starts[domain as usize + 1] as usize]
    }

    /// The domains of the next level in a domain.
    pub fn inside(&self, level: usize, domain: u32) -> std::ops::Range<usize> {
        let nodes = self.nodes_of(level, domain);
        let at = |node: &u32| self.of(level + 1, *node) as usize;
        nodes.first().map_or(0, at)..nodes.last().map_or(0, |last| at(last) + 1)
    }

    /// The number of domains of the innermost level; without levels, all nodes are one domain.
    pub fn leaves(&self) -> u32 {
        self.levels().checked_sub(1).map_or(1, |inner| self.count(inner))
    }

    /// The domain of a node at the innermost level.
    pub fn leaf(&self, node: u32) -> u32 {
        self.levels().checked_sub(1).map_or(0, |inner| self.of(inner, node))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test that expects too much fails, as it should")]

    use proptest::prelude::*;

    use crate::arrange::hierarchy::{Hierarchy, UNKNOWN};

    /// Labels by level and node.
    fn labels() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let label = prop_oneof![4 => 0..3_u32, 1 => Just(UNKNOWN)];
        (0..4_usize, 0..7_usize).prop_flat_map(move |(levels, nodes)| {
            prop::collection::vec(prop::collection::vec(label.clone(), nodes), levels)
        })
    }

    /// The domain of a node at a level, by its definition: its labels down to the level, and the node itself if one is missing.
    fn domain(labels: &[Vec<u32>], level: usize, node: usize) -> (Vec<u32>, Option<usize>) {
        let own: Vec<u32> = labels[..=level].iter().map(|column| column[node]).collect();
        match own.iter().position(|&label| label == UNKNOWN) {
            Some(missing) => (own[..=missing].to_vec(), Some(node)),
            None => (own, None),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn domains_are_the_labels_down_to_a_level(labels in labels()) {
            let nodes = labels.first().map_or(5, Vec::len);
            let found = Hierarchy::new(nodes as u32, &labels).expect("a label per node");
            let mut order: Vec<usize> = (0..nodes).collect();
            order.sort_by_key(|&node| (labels.len().checked_sub(1).map(|inner| domain(&labels, inner, node)), node));
            prop_assert_eq!(found.order(), order.iter().map(|&node| node as u32).collect::<Vec<_>>());
            prop_assert_eq!((found.levels(), found.nodes()), (labels.len(), nodes as u32));
            for level in 0..labels.len() {
                let mut all: Vec<_> = order.iter().map(|&node| domain(&labels, level, node)).collect();
                all.dedup();
                prop_assert_eq!(found.count(level) as usize, all.len());
                for (number, one) in (0..).zip(&all) {
                    let mine: Vec<u32> =
                        order.iter().filter(|&&node| domain(&labels, level, node) == *one).map(|&node| node as u32).collect();
                    prop_assert_eq!(found.nodes_of(level, number), &mine[..]);
                    prop_assert!(mine.iter().all(|&node| found.of(level, node) == number));
                    if level + 1 < labels.len() {
                        let mut inner: Vec<usize> = mine.iter().map(|&node| found.of(level + 1, node) as usize).collect();
                        inner.dedup();
                        prop_assert_eq!(found.inside(level, number).collect::<Vec<_>>(), inner);
                    }
                }
            }
            let inner = labels.len().checked_sub(1);
            prop_assert_eq!(found.leaves(), inner.map_or(1, |inner| found.count(inner)));
            for node in 0..nodes as u32 {
                prop_assert_eq!(found.leaf(node), inner.map_or(0, |inner| found.of(inner, node)));
            }
        }

        /// The first node rank with other nodes decides: by domain, then by node. One without a node decides nothing.
        #[test]
        fn the_first_difference_decides_which_nodes_are_earlier(
            labels in prop::collection::vec(0..3_u32, 6),
            one in prop::collection::vec(prop::option::weighted(0.9, 0..6_u32), 3),
            other in prop::collection::vec(prop::option::weighted(0.9, 0..6_u32), 3),
        ) {
            for levels in [&[labels][..], &[]] {
                let domains = Hierarchy::new(6, levels).expect("a label per node");
                let place = |node: u32| domains.order().iter().position(|&other| other == node);
                let differs = one.iter().zip(&other).find(|(one, other)| one != other);
                let expected = match differs {
                    Some((Some(one), Some(other))) => place(*one) < place(*other),
                    _ => false,
                };
                prop_assert_eq!(domains.earlier(&one, &other), expected);
            }
        }
    }

    #[test]
    fn a_level_has_one_label_per_node() {
        for count in [2, 4] {
            let fault = Hierarchy::new(3, &[vec![0; 3], vec![0; count]]).expect_err("it has another number");
            assert_eq!(fault.message, format!("level 1 has {count} labels for 3 nodes"));
        }
    }
}
