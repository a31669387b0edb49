//! The order in which trainers sort the nodes that Ray gives them.
//!
//! Follows verl's `sort_placement_group_by_node_ip`, slime's `sort_key`, SkyRL's `ResolvedPlacementGroup`, NeMo-RL's
//! `_sort_bundle_indices_by_topology` and ROLL's `ResourceManager.__init__`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::ids::NodeRank;
use crate::inventory::{Inventory, Sorted};
use crate::rank_set::RankSet;

/// What a trainer sorts nodes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeOrder {
    /// Addresses as text: 10.0.0.10 before 10.0.0.9.
    Text,
    /// Addresses as numbers, IPv4 before IPv6 before names.
    Number,
    /// Ray's ids of the nodes.
    Id,
    /// Domains of NVLink by the lowest rank in them, and ranks in a domain, as their labels state them.
    Topology,
    /// The same, or Ray's ids if no node has such a label.
    TopologyOrId,
    /// The variable `NODE_RANK` of each node, which a label states.
    Rank,
    /// The same, or the number of CPUs of each node, ascending, if no node states a rank.
    RankOrCpus,
}

impl NodeOrder {
    /// Every order with its name in plans.
    pub const ALL: [(NodeOrder, &'static str); 7] = [
        (NodeOrder::Text, "text"),
        (NodeOrder::Number, "number"),
        (NodeOrder::Id, "id"),
        (NodeOrder::Topology, "topology"),
        (NodeOrder::TopologyOrId, "topology-id"),
        (NodeOrder::Rank, "rank"),
        (NodeOrder::RankOrCpus, "rank-cpus"),
    ];

    /// The names of all.
    pub const NAMES: [&'static str; 7] = {
        let mut names = [""; 7];
        let mut index = 0;
        while index < names.len() {
            names[index] = Self::ALL[index].1;
            index += 1;
        }
        names
    };

    /// Whether a trainer sorts all nodes that it uses together, not those of each pool.
    pub fn is_of_cluster(self) -> bool {
        matches!(self, NodeOrder::Rank | NodeOrder::RankOrCpus)
    }

    /// The order of a name, if it is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(order, known)| (known == name).then_some(order))
    }

    /// Its name in plans.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find_map(|(order, name)| (order == self).then_some(name)).unwrap_or_default()
    }
}

/// The label, and the variable, with the rank that a node states to ROLL.
pub const NODE_RANK: &str = "NODE_RANK";
/// The label with the NVLink domain of a node.
pub const NVLINK_DOMAIN: &str = "nvlink_domain";
/// The label with NeMo-RL's rank of a node in the network.
const TOPO_RANK: &str = "topo_rank";

/// Where each of some nodes comes in an order; nodes that the order does not tell apart have the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    nodes: RankSet,
    /// By position in `nodes`.
    places: Vec<u32>,
    /// The nodes in that order; those with the same place keep theirs.
    sorted: Vec<u32>,
}

impl Places {
    fn by_key<K: Ord>(nodes: &RankSet, keys: impl IntoIterator<Item = K>) -> Self {
        // Each key moves with its node: a comparison looks up nothing elsewhere.
        let mut keyed: Vec<(K, u32, u32)> =
            keys.into_iter().zip(nodes.iter()).zip(0..).map(|((key, node), index)| (key, index, node)).collect();
        keyed.sort_unstable();
        let mut places = vec![0; keyed.len()];
        for (place, alike) in (0..).zip(keyed.chunk_by(|one, other| one.0 == other.0)) {
            alike.iter().for_each(|&(_, index, _)| places[index as usize] = place);
        }
        Places { nodes: nodes.clone(), places, sorted: keyed.into_iter().map(|(_, _, node)| node).collect() }
    }

    /// The place of a node, if it is one of them.
    pub fn of(&self, node: NodeRank) -> Option<u32> {
        self.places.get(self.nodes.position(node.0)? as usize).copied()
    }

    /// The nodes in the order of their places; those with the same place keep theirs.
    pub fn sorted(&self) -> &[u32] {
        &self.sorted
    }

    /// The nodes with their places, by node rank.
    pub fn iter(&self) -> impl Iterator<Item = (NodeRank, u32)> {
        self.nodes.iter().map(NodeRank).zip(self.places.iter().copied())
    }
}

impl Inventory {
    /// All nodes in the order that a trainer sorts them in; those with the same place keep their order. `None` if what it
    /// sorts by is unknown for one of them. `ids` are Ray's ids of the nodes, by node rank.
    pub fn order(&self, order: NodeOrder, ids: &[String]) -> Option<Vec<u32>> {
        self.with_order(order, ids, |sorted| match sorted {
            Sorted::Unknown => None,
            Sorted::Unchanged => Some((0..self.num_nodes()).collect()),
            Sorted::Other(nodes) => Some(nodes.to_vec()),
        })
    }

    /// What [`Inventory::order`] returns, but `None` also if the nodes are in that order already.
    pub fn other_order(&self, order: NodeOrder, ids: &[String]) -> Option<Arc<[u32]>> {
        self.with_order(order, ids, |sorted| match sorted {
            Sorted::Other(nodes) => Some(nodes.clone()),
            _ => None,
        })
    }

    /// Pass the sorted nodes to a function. Orders by address depend on the nodes only, and are computed once.
    fn with_order<T>(&self, order: NodeOrder, ids: &[String], using: impl FnOnce(&Sorted) -> T) -> T {
        let sort = || {
            let Some(places) = self.places(order, &RankSet::first_ranks(self.num_nodes()), ids) else {
                return Sorted::Unknown;
            };
            if places.places.is_sorted() {
                return Sorted::Unchanged;
            }
            Sorted::Other(places.sorted.into())
        };
        match order {
            NodeOrder::Text => using(self.address_orders().text.get_or_init(sort)),
            NodeOrder::Number => using(self.address_orders().number.get_or_init(sort)),
            _ => using(&sort()),
        }
    }

    /// Where each of these nodes comes if a trainer sorts them; see [`Inventory::order`].
    pub fn places(&self, order: NodeOrder, nodes: &RankSet, ids: &[String]) -> Option<Places> {
        match order {
            NodeOrder::Text => {
                let addresses = self.addresses(nodes.iter().map(NodeRank))?;
                Some(Places::by_key(nodes, addresses.into_iter().map(|text| (first_bytes(text), text))))
            }
            NodeOrder::Number => {
                let addresses = self.addresses(nodes.iter().map(NodeRank))?;
                Some(Places::by_key(nodes, addresses.into_iter().map(address_key)))
            }
            NodeOrder::Id => by_id(nodes, ids),
            NodeOrder::Topology => self.by_topology(nodes),
            NodeOrder::TopologyOrId => self.by_topology(nodes).or_else(|| by_id(nodes, ids)),
            NodeOrder::RankOrCpus if nodes.iter().all(|node| self.label(NodeRank(node), NODE_RANK).is_none()) => {
                self.by_cpus(nodes)
            }
            NodeOrder::Rank | NodeOrder::RankOrCpus => {
                // A node without a rank of its own is 0 for ROLL, so more than one leaves the order open.
                let ranks: Vec<i64> = self.numbers(nodes, NODE_RANK, 0);
                let known = ranks.iter().filter(|&&rank| rank == 0).count() < 2;
                known.then(|| Places::by_key(nodes, ranks))
            }
        }
    }

    /// Whether a trainer that sorts these nodes leaves them as they are; `None` if what it sorts by is unknown for one of
    /// them. Addresses are compared one after the other, and not sorted.
    pub fn is_sorted(&self, order: NodeOrder, nodes: &[NodeRank], ids: &[String]) -> Option<bool> {
        let addresses = || self.addresses(nodes.iter().copied());
        match order {
            NodeOrder::Text => Some(addresses()?.is_sorted()),
            NodeOrder::Number => Some(addresses()?.into_iter().map(address_key).is_sorted()),
            _ => {
                let places = self.places(order, &nodes.iter().map(|node| node.0).collect(), ids)?;
                Some(nodes.is_sorted_by_key(|&node| places.of(node)))
            }
        }
    }

    /// The address of each of these nodes, if all have one.
    fn addresses(&self, nodes: impl Iterator<Item = NodeRank>) -> Option<Vec<&str>> {
        nodes.map(|node| self.address(node)).collect()
    }

    /// The number in a label of each of these nodes: the default without the label, -1 for a text that is no number.
    fn numbers(&self, nodes: &RankSet, key: &str, default: i64) -> Vec<i64> {
        nodes.iter().map(|node| self.label(NodeRank(node), key).map_or(default, number)).collect()
    }

    /// The order of the CPUs that can be reserved, if they are known for each of these nodes.
    fn by_cpus(&self, nodes: &RankSet) -> Option<Places> {
        let cpus = |node| self.record(NodeRank(node)).and_then(|record| record.reservable.cpus);
        Some(Places::by_key(nodes, nodes.iter().map(cpus).collect::<Option<Vec<_>>>()?))
    }

    fn by_topology(&self, nodes: &RankSet) -> Option<Places> {
        let ranks = self.numbers(nodes, TOPO_RANK, -1);
        let domains: Vec<_> = nodes.iter().map(|node| self.label(NodeRank(node), NVLINK_DOMAIN)).collect();
        let named = domains.iter().flatten().any(|name| !name.is_empty());
        if !named && ranks.iter().all(|&rank| rank < 0) {
            return None;
        }
        let mut lowest: BTreeMap<Option<&str>, i64> = BTreeMap::new();
        for (&domain, &rank) in domains.iter().zip(&ranks) {
            lowest.entry(domain).and_modify(|known| *known = rank.min(*known)).or_insert(rank);
        }
        let keys: Vec<_> = domains.iter().zip(&ranks).map(|(domain, &rank)| (lowest.get(domain), rank)).collect();
        Some(Places::by_key(nodes, keys))
    }
}

/// The order of Ray's ids, if they are known.
fn by_id(nodes: &RankSet, ids: &[String]) -> Option<Places> {
    let keys: Option<Vec<_>> = nodes.iter().map(|node| ids.get(node as usize)).collect();
    keys.filter(|_| !ids.is_empty()).map(|keys| Places::by_key(nodes, keys))
}

/// The first 16 bytes of a text as a number, which most addresses fit in: texts with different ones are in the order of these
/// numbers, and only texts with the same ones need to be compared.
fn first_bytes(text: &str) -> u128 {
    let mut first = [0; 16];
    first.iter_mut().zip(text.bytes()).for_each(|(byte, of_text)| *byte = of_text);
    u128::from_be_bytes(first)
}

/// The number that a label states; -1 for any other text.
fn number(text: &str) -> i64 {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| decimal && text.len() < 10).unwrap_or(-1)
}

/// What an address is sorted by: IPv4 as a number, then IPv6 as a number, then names, in which numbers count as numbers.
///
/// Brackets around an IPv6 address are ignored, and an IPv4 address mapped into IPv6 is read as IPv4. Two texts have the same
/// key only if they are the same address. No name is looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressKey<'a> {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address with its scope.
    V6(Ipv6Addr, &'a str),
    /// Any other text: its parts, and itself.
    Name(Vec<(&'a str, Option<Digits<'a>>)>, &'a str),
}

/// A number of any length: how many digits it has without zeros before it, and these.
pub type Digits<'a> = (usize, &'a str);

/// What an address is sorted by.
pub fn address_key(address: &str) -> AddressKey<'_> {
    if let Ok(found) = address.parse() {
        return AddressKey::V4(found);
    }
    let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let (number, scope) = match inner.split_once('%') {
        Some((number, scope)) if !scope.is_empty() && !scope.contains(['%', '/']) => (number, scope),
        _ => (inner, ""),
    };
    match number.parse::<Ipv6Addr>() {
        Ok(found) => match found.to_ipv4_mapped() {
            Some(mapped) => AddressKey::V4(mapped),
            None => AddressKey::V6(found, scope),
        },
        Err(_) => AddressKey::Name(natural(address), address),
    }
}

/// A name as texts and the numbers after them, so that node9 comes before node10.
pub(crate) fn natural(name: &str) -> Vec<(&str, Option<Digits<'_>>)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (text, after) = rest.split_at(rest.find(|one: char| one.is_ascii_digit()).unwrap_or(rest.len()));
        let (digits, after) = after.split_at(after.find(|one: char| !one.is_ascii_digit()).unwrap_or(after.len()));
        let significant = digits.trim_start_matches('0');
        parts.push((text, (!digits.is_empty()).then_some((significant.len(), significant))));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{address_key, first_bytes, number};

    #[test]
    fn texts_and_their_first_bytes_have_one_order() {
        let mut texts =
            ["", "a", "a\0", "ab", "b", "10.0.0.10", "10.0.0.9", "é", "node-with-a-name-1", "node-with-a-name-0"];
        texts.sort();
        assert!(texts.is_sorted_by_key(|text| (first_bytes(text), *text)));
        assert!(texts.is_sorted_by_key(|text| first_bytes(text)));
    }

    #[test]
    fn addresses_are_sorted_as_numbers_and_names_naturally() {
        let sorted = [
            "2.0.0.0",
            "::ffff:10.0.0.9",
            "10.0.0.10",
            "::1",
            "[fe80::1]",
            "fe80::1%eth0",
            "fe80::1%eth1",
            "fe80::2",
            "",
            "10.0.0",
            "10.0.0.010",
            "node2",
            "node09",
            "node10",
            "node10a",
        ];
        assert!(sorted.is_sorted_by_key(|address| address_key(address)));
        assert_eq!(address_key("[::1]"), address_key("::1"));
        assert!(address_key("node09") < address_key("node9"));
    }

    #[test]
    fn a_label_is_a_number_of_up_to_nine_characters() {
        let texts = ["7", "-7", "007", "-0", "123456789", "1234567890", "--7", "-", "", "7 ", "+7", "٣"];
        assert_eq!(texts.map(number), [7, -7, 7, 0, 123456789, -1, -1, -1, -1, -1, -1, -1]);
    }
}
