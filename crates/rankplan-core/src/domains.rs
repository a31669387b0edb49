//! The domains of each level of the network, from the labels of the nodes.
//!
//! A level is the key of a node label. A label is unique only within its parent, so a domain is the list of labels from the
//! outermost level inwards. A node without a label is a domain of its own.

use std::collections::HashMap;

use crate::inventory::Inventory;
use crate::order::natural;

/// Labels that order domains: a domain has the smallest rank of its nodes. The second one is NeMo-RL's.
pub const RANK_LABELS: [&str; 2] = ["rankplan.io/topology-rank", "topo_rank"];

/// The domains of one level, numbered depth first, so that the domains of a parent are consecutive. Within a parent, those
/// with a rank come first, then the others in natural order, and unlabelled nodes last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level<'a> {
    /// By node, its domain.
    pub ids: Vec<u32>,
    /// By domain, its labels and those of its parents, the outermost one first; `None` where its only node lacks one.
    pub names: Vec<Vec<Option<&'a str>>>,
    /// By domain, its domain at the level outside; 0 at the outermost level.
    pub parents: Vec<u32>,
}

/// The labels of some nodes at all levels, and one of these nodes if it lacks a label: it is alone then.
type Labels<'a> = (Vec<Option<&'a str>>, Option<u32>);

/// The domains of nodes at each level, outermost first. `label` gives the label of a node, by its index.
///
/// Nodes with the same labels are looked at together: there are far fewer domains than nodes.
pub fn domains<'a>(nodes: u32, levels: &[String], label: impl Fn(u32, &str) -> Option<&'a str>) -> Vec<Level<'a>> {
    let mut kinds: HashMap<Labels<'a>, u32> = HashMap::new();
    let mut ranks: Vec<Option<u32>> = Vec::new();
    let mut kind_of: Vec<u32> = Vec::with_capacity(nodes as usize);
    let (mut labels, mut before): (Vec<Option<&'a str>>, _) = (Vec::with_capacity(levels.len()), Vec::new());
    for node in 0..nodes {
        labels.clear();
        labels.extend(levels.iter().map(|level| label(node, level)));
        let alone = labels.contains(&None).then_some(node);
        // Most nodes have the labels of the node before.
        let kind = match kind_of.last() {
            Some(&last) if alone.is_none() && labels == before => last,
            _ => {
                let next = kinds.len() as u32;
                let kind = *kinds.entry((labels.clone(), alone)).or_insert(next);
                if kind == next {
                    ranks.push(None);
                }
                before.clone_from(&labels);
                kind
            }
        };
        let lowest = &mut ranks[kind as usize];
        *lowest = lower(*lowest, rank_of(|key| label(node, key)));
        kind_of.push(kind);
    }
    let mut labels: Vec<_> = kinds.into_iter().collect();
    labels.sort_unstable_by_key(|&(_, kind)| kind);
    let labels: Vec<Labels<'a>> = labels.into_iter().map(|(labels, _)| labels).collect();
    let mut found: Vec<Level<'a>> = Vec::with_capacity(levels.len());
    // By kind, its domain at the level outside.
    let mut parents = vec![0; labels.len()];
    for depth in 0..levels.len() {
        let level = below(&labels, &ranks, &mut parents, depth, found.last());
        found.push(level);
    }
    for level in &mut found {
        level.ids = kind_of.iter().map(|&kind| level.ids[kind as usize]).collect();
    }
    found
}

/// The domains of a level, with `ids` by kind. `parents` has the domain of each kind at the level outside, and gets that at
/// this one.
fn below<'a>(
    labels: &[Labels<'a>],
    ranks: &[Option<u32>],
    parents: &mut [u32],
    depth: usize,
    outside: Option<&Level<'a>>,
) -> Level<'a> {
    let keys: Vec<_> = parents
        .iter()
        .zip(labels)
        .map(|(&parent, (labels, node))| (parent, labels[depth], labels[depth].is_none().then_some(*node).flatten()))
        .collect();
    let mut lowest: HashMap<_, Option<u32>> = HashMap::new();
    for (&key, &rank) in keys.iter().zip(ranks) {
        let known = lowest.entry(key).or_default();
        *known = lower(*known, rank);
    }
    let mut order: Vec<_> = lowest.into_iter().collect();
    order.sort_by_cached_key(|&((parent, label, node), rank)| {
        let rank = rank.filter(|_| label.is_some());
        (parent, label.is_none(), rank.is_none(), rank, label.map(natural), label, node)
    });
    let index: HashMap<_, u32> = order.iter().zip(0..).map(|(&(key, _), index)| (key, index)).collect();
    for (parent, key) in parents.iter_mut().zip(&keys) {
        *parent = index[key];
    }
    let name = |parent: u32, label| {
        let mut name = outside.map_or_else(Vec::new, |level| level.names[parent as usize].clone());
        name.push(label);
        name
    };
    Level {
        ids: parents.to_vec(),
        names: order.iter().map(|&((parent, label, _), _)| name(parent, label)).collect(),
        parents: order.iter().map(|&((parent, _, _), _)| parent).collect(),
    }
}

/// The nodes domain after domain, depth first. Within a domain, those with a rank come first; equal ones keep their order.
pub fn natural_order<'a>(nodes: u32, levels: &[String], label: impl Fn(u32, &str) -> Option<&'a str>) -> Vec<u32> {
    let found = domains(nodes, levels, &label);
    let rank = |node: u32| rank_of(|key| label(node, key));
    let mut order: Vec<u32> = (0..nodes).collect();
    order.sort_by_cached_key(|&node| {
        let (domain, rank) = (found.last().map(|level| level.ids[node as usize]), rank(node));
        (domain, rank.is_none(), rank)
    });
    order
}

/// The lower one of two ranks, if there is one.
fn lower(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}

/// The rank that the labels of a node state, if one does.
fn rank_of<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Option<u32> {
    let text = RANK_LABELS.iter().find_map(|key| label(key))?;
    text.parse().ok().filter(|_| text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Inventory {
    /// The domains of the nodes at each of these levels, outermost first.
    pub fn domains(&self, levels: &[String]) -> Vec<Level<'_>> {
        domains(self.num_nodes(), levels, |node, key| self.label(crate::ids::NodeRank(node), key))
    }
}
