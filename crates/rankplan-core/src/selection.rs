//! Node groups and the resources that they count.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::NodeRank;
use crate::inventory::Inventory;
use crate::rank_set::{RankRange, RankSet};
use crate::words::plural;

/// The kind of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// An accelerator of a node.
    Accelerator,
    /// A whole node.
    Node,
    /// A piece of configured hardware of this type, such as a robot.
    Hardware(String),
}

impl ResourceKind {
    /// The name of [`ResourceKind::Accelerator`].
    pub const ACCELERATOR: &str = "accelerator";
    /// The name of [`ResourceKind::Node`].
    pub const NODE: &str = "node";

    /// The name of the kind: `accelerator`, `node` or the hardware type.
    pub fn name(&self) -> &str {
        match self {
            ResourceKind::Accelerator => Self::ACCELERATOR,
            ResourceKind::Node => Self::NODE,
            ResourceKind::Hardware(name) => name,
        }
    }

    /// The noun for this many resources of the kind.
    pub fn noun(&self, count: u32) -> Cow<'static, str> {
        match self {
            ResourceKind::Accelerator => plural(count, Self::ACCELERATOR),
            ResourceKind::Node => plural(count, Self::NODE),
            ResourceKind::Hardware(kind) => Cow::Owned(format!("{kind} {}", plural(count, "unit"))),
        }
    }
}

impl From<String> for ResourceKind {
    /// The kind with this name.
    fn from(name: String) -> Self {
        match name.as_str() {
            Self::ACCELERATOR => ResourceKind::Accelerator,
            Self::NODE => ResourceKind::Node,
            _ => ResourceKind::Hardware(name),
        }
    }
}

/// A node group that a component selects.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The group's label.
    pub label: String,
    /// Its nodes; all must be in the inventory.
    pub nodes: RankSet,
    /// The resources that it counts on them.
    pub counted: Counted,
}

/// The resources that a node group counts on its nodes.
#[derive(Clone, Debug)]
pub enum Counted {
    /// Accelerators if any of the nodes has one, else nodes.
    AcceleratorsOrNodes,
    /// Nodes.
    Nodes,
    /// Configured hardware: its type, and the number on each node, ascending by node.
    Hardware(String, Vec<(NodeRank, u32)>),
}

/// A selected node group and the kind of resource that it counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The group's label.
    pub label: String,
    /// The kind that it counts.
    pub kind: ResourceKind,
}

/// Reject two selections that count the same resources of a node: one sweep over all of them.
pub(crate) fn reject_overlap(
    inventory: &Inventory,
    selections: &[Selection],
    kinds: &[ResourceKind],
    by_node: bool,
) -> Result<(), Diagnostic> {
    if selections.len() < 2 {
        return Ok(());
    }
    let has_any = |node: &u32| inventory.spec(NodeRank(*node)).is_some_and(|spec| !spec.accelerator_ids.is_empty());
    let counted = |selection: &Selection| match &selection.counted {
        _ if by_node => selection.nodes.clone(),
        Counted::Hardware(_, counts) => counts.iter().map(|&(NodeRank(node), _)| node).collect(),
        Counted::AcceleratorsOrNodes | Counted::Nodes => selection.nodes.iter().filter(has_any).collect(),
    };
    let counted: Vec<RankSet> = selections.iter().map(counted).collect();
    let mut names: HashMap<&ResourceKind, usize> = HashMap::new();
    let mut places = Vec::new();
    for (index, (nodes, kind)) in counted.iter().zip(kinds).enumerate() {
        let next = names.len();
        let kind = if by_node { 0 } else { *names.entry(kind).or_insert(next) };
        places.extend(nodes.ranges().iter().map(|&range| (kind, range, index)));
    }
    places.sort_unstable();
    let overlap = |pair: &&[(usize, RankRange, usize)]| pair[0].0 == pair[1].0 && pair[0].1.last() >= pair[1].1.first();
    let Some(&[(.., one), (.., other)]) = places.windows(2).find(overlap) else {
        return Ok(());
    };
    let (first, second) = (one.min(other), one.max(other));
    let (earlier, later) = (&selections[first].label, &selections[second].label);
    let (message, help) = if earlier == later {
        (format!("node group `{earlier}` is selected twice"), "select each group once")
    } else {
        let both = counted[first].intersection(&counted[second]);
        let what = if by_node { ResourceKind::Node.noun(2) } else { kinds[first].noun(2) };
        let nodes = plural(both.len(), "node");
        (
            format!("node groups `{earlier}` and `{later}` both count the {what} of {nodes} {both}"),
            "select groups without common nodes, or one group that has all of these nodes",
        )
    };
    Err(Diagnostic::new(Code::OverlappingGroups, message).help(help))
}
