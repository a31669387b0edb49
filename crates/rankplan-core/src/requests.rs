//! The placement groups that a trainer asks Ray for, as rows of equal groups.

use std::ops::Range;

use crate::amounts::Amounts;
use crate::group_names::GroupNames;
use crate::inventory::Inventory;
use crate::node_runs::NodeRuns;
use crate::order::NodeOrder;
use crate::taken::Taken;

/// Ray's strategy of a group that must be on one node.
pub const STRICT_PACK: &str = "STRICT_PACK";

/// What equal groups have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The first component on them; empty if none is.
    pub component: String,
    /// Ray's strategy; `None` for actors without a group, one for each bundle.
    pub strategy: Option<String>,
    /// Whether they may never come.
    pub optional: bool,
    /// What the trainer then sorts the nodes of their pool by, if it does.
    pub order: Option<NodeOrder>,
    /// The bundles of a group, as runs of equal ones.
    pub bundles: Vec<Bundles>,
}

/// Equal bundles in a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bundles {
    /// How many there are.
    pub times: u32,
    /// What each has.
    pub each: Bundle,
}

/// What a bundle reserves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// The number of accelerators.
    pub accelerators: u32,
    /// Everything else, as far as the trainer's code is known to ask for it.
    pub amounts: Amounts,
}

impl From<u32> for Bundle {
    fn from(accelerators: u32) -> Self {
        Bundle { accelerators, amounts: Amounts::default() }
    }
}

/// Bundles as runs of equal ones.
pub fn runs_of(bundles: impl IntoIterator<Item = (u32, Bundle)>) -> Vec<Bundles> {
    let mut runs: Vec<Bundles> = Vec::new();
    for (times, each) in bundles.into_iter().filter(|(times, _)| *times > 0) {
        match runs.last_mut() {
            Some(last) if last.each == each => last.times = last.times.saturating_add(times),
            _ => runs.push(Bundles { times, each }),
        }
    }
    runs
}

impl Kind {
    /// The number of bundles of a group.
    pub fn num_bundles(&self) -> u32 {
        self.bundles.iter().map(|run| run.times).sum()
    }

    /// The number of accelerators of a group.
    pub fn accelerators(&self) -> u64 {
        self.bundles.iter().map(|run| u64::from(run.times) * u64::from(run.each.accelerators)).sum()
    }

    /// Each bundle.
    pub fn each(&self) -> impl Iterator<Item = &Bundle> {
        self.bundles.iter().flat_map(|run| std::iter::repeat_n(&run.each, run.times as usize))
    }

    /// The accelerators of each bundle.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.each().map(|bundle| bundle.accelerators)
    }
}

/// Equal groups in a row, which differ at most in their nodes, and in a number of their names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// What they have in common.
    pub kind: Kind,
    /// Regular expressions for their whole names; `None` if they have none.
    pub names: Option<GroupNames>,
    /// How many there are, at least one.
    pub groups: u32,
    /// The node of each bundle, group by group; as many for each group.
    pub nodes: NodeRuns,
}

impl Row {
    /// The nodes of the bundles of a group.
    pub fn nodes_of(&self, group: u32) -> NodeRuns {
        self.nodes_in(group..group + 1)
    }

    /// The nodes of the bundles of some of the groups.
    fn nodes_in(&self, groups: Range<u32>) -> NodeRuns {
        let each = self.nodes.len() / self.groups.max(1);
        self.nodes.slice(groups.start * each..groups.end * each)
    }

    /// Some of the groups.
    fn part(&self, groups: Range<u32>) -> Self {
        Row {
            kind: self.kind.clone(),
            names: self.names.as_ref().map(|names| names.from(groups.start)),
            groups: groups.end - groups.start,
            nodes: self.nodes_in(groups),
        }
    }

    /// The names of these groups and of another one, if that is equal to them.
    fn continued(&self, next: &Row) -> Option<Option<GroupNames>> {
        let nodes = |row: &Row| (row.nodes.len() / row.groups.max(1), row.nodes.len() % row.groups.max(1));
        if self.kind != next.kind || nodes(self) != nodes(next) {
            return None;
        }
        match (&self.names, &next.names) {
            (None, None) => Some(None),
            (Some(names), Some(name)) => names.continued(self.groups, &name.get(0)).map(Some),
            _ => None,
        }
    }
}

/// The groups that a trainer asks for, in order. Equal groups have equal rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    rows: Vec<Row>,
    /// By row, the number of groups before it.
    before: Vec<u32>,
    len: u32,
}

/// The requests of a pool: groups whose nodes a trainer sorts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What it sorts them by.
    pub order: NodeOrder,
    /// The numbers of its requests, as ranges.
    pub requests: Vec<Range<u32>>,
}

/// The accelerators of groups in the order of their bundles, and how they are divided.
#[derive(Clone, Copy, Debug)]
pub struct Division<'a> {
    /// The bundles of a group, in turn until it is full.
    pub bundles: &'a [Bundle],
    /// The accelerators of a group; `None` if all are one group.
    pub per_group: Option<u32>,
}

/// How groups are named.
#[derive(Clone, Copy, Debug)]
pub enum Naming<'a> {
    /// They have no names.
    Unnamed,
    /// All have this name.
    Same(&'a str),
    /// This text is before the number of a group.
    Numbered(&'a str),
    /// These texts are before the number of a pool, and before the number of a group in its pool, which has so many.
    Pools(&'a str, &'a str, u32),
}

impl Naming<'_> {
    /// The names of groups from a position on, and how many of them only differ in a number.
    fn names(self, position: u32) -> (Option<GroupNames>, u32) {
        let numbered = |before: String, first: u32, after: &str| {
            Some(GroupNames::Numbered { before, first, after: after.to_owned() })
        };
        match self {
            Naming::Unnamed => (None, u32::MAX),
            Naming::Same(name) => (Some(GroupNames::Same(name.to_owned())), u32::MAX),
            Naming::Numbered(before) => (numbered(before.to_owned(), position, ""), u32::MAX),
            Naming::Pools(before, middle, 1) => {
                (numbered(before.to_owned(), position, &format!("{middle}0")), u32::MAX)
            }
            Naming::Pools(before, middle, groups) => {
                let (pool, group) = (position / groups.max(1), position % groups.max(1));
                (numbered(format!("{before}{pool}{middle}"), group, ""), groups - group)
            }
        }
    }
}

impl Requests {
    /// The groups on these accelerators. `kind` has no bundles: these follow from the division.
    pub fn of(inventory: &Inventory, taken: &Taken, kind: &Kind, division: Division<'_>, naming: Naming<'_>) -> Self {
        let mut requests = Requests::default();
        let per_group = division.per_group.unwrap_or(taken.len()).max(1);
        let groups = taken.len() / per_group;
        let bundles = bundles_of(per_group, division.bundles);
        let kind = Kind { bundles, ..kind.clone() };
        let nodes = nodes_of(inventory, taken, &kind);
        let each = kind.num_bundles();
        let mut position = 0;
        while position < groups {
            let (names, alike) = naming.names(position);
            let end = groups.min(position.saturating_add(alike));
            let nodes = nodes.slice(position * each..end * each);
            requests.push(Row { kind: kind.clone(), names, groups: end - position, nodes });
            position = end;
        }
        requests
    }

    /// The number of groups.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rows: neighbours could not be one.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a group, and the position of the group in it.
    pub fn get(&self, number: u32) -> Option<(&Row, u32)> {
        let at = self.before.partition_point(|&before| before <= number).checked_sub(1)?;
        let group = number - self.before[at];
        (group < self.rows[at].groups).then(|| (&self.rows[at], group))
    }

    /// Add groups.
    ///
    /// A group joins the row before it if they are equal but for a number that counts up, so that rows do not depend on the
    /// parts in which groups are added. Three groups decide: the first may belong to the row before, the second may start a
    /// row, and the third tells what counts up. If that is what counts up in `row`, too, the others join at once.
    pub fn push(&mut self, row: Row) {
        const DECIDING: u32 = 3;
        let deciding = row.groups.min(DECIDING);
        for group in 0..deciding {
            self.push_one(row.part(group..group + 1));
        }
        let others = row.part(deciding..row.groups);
        if others.groups == 0 {
            return;
        }
        match self.rows.last_mut() {
            Some(last) if last.names.as_ref().map(|names| names.from(last.groups)) == others.names => {
                last.groups += others.groups;
                last.nodes.extend(&others.nodes);
                self.len += others.groups;
            }
            _ => (0..others.groups).for_each(|group| self.push_one(others.part(group..group + 1))),
        }
    }

    fn push_one(&mut self, mut one: Row) {
        match self.rows.last_mut().and_then(|last| Some((last.continued(&one)?, last))) {
            Some((names, last)) => {
                last.names = names;
                last.groups += 1;
                last.nodes.extend(&one.nodes);
            }
            None => {
                // One name has no number that counts.
                one.names = one.names.map(|names| GroupNames::Same(names.get(0)));
                self.before.push(self.len);
                self.rows.push(one);
            }
        }
        self.len += 1;
    }

    /// Add the groups of other requests.
    pub fn extend(&mut self, other: &Self) {
        for row in &other.rows {
            self.push(row.clone());
        }
    }

    /// Some of the groups; those after the last one are left out.
    #[must_use]
    pub fn slice(&self, numbers: Range<u32>) -> Self {
        let mut found = Requests::default();
        for (row, groups) in self.parts(numbers) {
            found.push(row.part(groups));
        }
        found
    }

    /// The node of each bundle of some of the groups; those after the last one are left out.
    pub fn nodes(&self, numbers: Range<u32>) -> NodeRuns {
        let mut found = NodeRuns::default();
        for (row, groups) in self.parts(numbers) {
            found.extend(&row.nodes_in(groups));
        }
        found
    }

    /// The rows of some of the groups, each with the positions of these in it.
    fn parts(&self, numbers: Range<u32>) -> impl Iterator<Item = (&Row, Range<u32>)> {
        let from = self.before.partition_point(|&before| before <= numbers.start).saturating_sub(1);
        let rows = self.rows[from..].iter().zip(&self.before[from..]);
        rows.take_while(move |(_, before)| **before < numbers.end).filter_map(move |(row, &before)| {
            let (start, end) = (numbers.start.max(before), numbers.end.min(before + row.groups));
            (start < end).then(|| (row, start - before..end - before))
        })
    }

    /// The pools whose nodes a trainer sorts. Groups without nodes, and those that are not sorted, are in none.
    ///
    /// Neighbours are in one pool if they have the same component and order, and names that differ in the number at their
    /// end. Groups without a name are sorted one by one, unless each must be on one node (`STRICT_PACK`): sorting one of these
    /// would change nothing, so neighbours of a component are one pool. Neighbours in an order of the whole cluster are always
    /// in one pool.
    pub fn pools(&self) -> Vec<Pool> {
        let mut pools: Vec<Pool> = Vec::new();
        let mut known = None;
        for (row, &before) in self.rows.iter().zip(&self.before) {
            let Some(order) = row.kind.order.filter(|_| !row.nodes.is_empty()) else { continue };
            let mut group = 0;
            while group < row.groups {
                let (name, alike) = pool_name(row, order, group);
                let end = row.groups.min(group.saturating_add(alike));
                let key = name.map(|name| (order, (!order.is_of_cluster()).then_some(&row.kind.component), name));
                let numbers = before + group..before + end;
                match pools.last_mut() {
                    Some(pool) if key.is_some() && key == known => match pool.requests.last_mut() {
                        Some(last) if last.end == numbers.start => last.end = numbers.end,
                        _ => pool.requests.push(numbers),
                    },
                    _ => pools.push(Pool { order, requests: vec![numbers] }),
                }
                known = key;
                group = end;
            }
        }
        pools
    }
}

/// The part of a group's name that it shares with its pool, `None` if it is a pool by itself, and how many groups of its row
/// from there on are in the same pool.
fn pool_name(row: &Row, order: NodeOrder, group: u32) -> (Option<String>, u32) {
    if order.is_of_cluster() {
        return (Some(String::new()), u32::MAX);
    }
    let Some(names) = &row.names else {
        let is_on_one_node = row.kind.strategy.as_deref() == Some(STRICT_PACK);
        return if is_on_one_node { (Some(String::new()), u32::MAX) } else { (None, 1) };
    };
    let alike = match names {
        GroupNames::Numbered { after, .. } if !after.is_empty() => 1,
        _ => u32::MAX,
    };
    (Some(names.get(group).trim_end_matches(|one: char| one.is_ascii_digit()).to_owned()), alike)
}

/// These bundles in turn until they have so many accelerators, as runs; the last one may be smaller.
fn bundles_of(accelerators: u32, bundles: &[Bundle]) -> Vec<Bundles> {
    let smaller = |bundle: &Bundle, accelerators| Bundle { accelerators, amounts: bundle.amounts.clone() };
    if let [bundle] = bundles
        && bundle.accelerators > 0
    {
        let rest = accelerators % bundle.accelerators;
        let whole = (accelerators / bundle.accelerators, bundle.clone());
        return runs_of([whole, (u32::from(rest > 0), smaller(bundle, rest))]);
    }
    let mut rest = accelerators;
    let mut taken = Vec::new();
    for bundle in bundles.iter().filter(|bundle| bundle.accelerators > 0).cycle() {
        if rest == 0 {
            break;
        }
        let size = bundle.accelerators.min(rest);
        rest -= size;
        taken.push((1, smaller(bundle, size)));
    }
    runs_of(taken)
}

/// The node of each bundle, which is that of its first accelerator: the bundles of a group are repeated until all
/// accelerators have one.
fn nodes_of(inventory: &Inventory, taken: &Taken, kind: &Kind) -> NodeRuns {
    let mut nodes = NodeRuns::default();
    if let [run] = &kind.bundles[..] {
        let size = run.each.accelerators;
        let mut position = 0;
        for (node, count) in taken.stretches(inventory) {
            // Bundles start at multiples of their size.
            let starts = u32::div_ceil(position + count, size) - u32::div_ceil(position, size);
            nodes.push(node.0, starts);
            position += count;
        }
        return nodes;
    }
    let mut sizes = kind.sizes().collect::<Vec<_>>().into_iter().cycle();
    let (mut position, mut next) = (0, 0);
    for (node, count) in taken.stretches(inventory) {
        position += count;
        while next < position {
            nodes.push(node.0, 1);
            next += sizes.next().unwrap_or(u32::MAX - next);
        }
    }
    nodes
}
