//! Node ranks to nodes: order, selection and repair are one problem.
//!
//! Every rule first, then the fewest moves, then what is preferred, then the fewest crossings, then even shares, then the fewest
//! domains, then unused nodes that stay whole; see [`objective`]. Small instances are solved exactly. Larger ones are packed level
//! by level, and the result says whether it meets a lower bound of the cost.
//!
//! The modules in order of use; each one uses only those above it:
//!
//! | module | content |
//! |---|---|
//! | [`hierarchy`], [`segments`] | levels of the network; whole segments of nodes within domains |
//! | [`demand`], [`objective`] | the node ranks that an arrangement keeps together; its cost |
//! | `filling`, `nesting`, `fitting` | the fewest domains and even shares of a number of nodes; whether sets within sets fit |
//! | `matching` | whether there are nodes for all node ranks |
//! | `bundles`, `merging`, `packing`, `exact` | node ranks that stay together; sets of them into domains; a few of them exactly |

mod bundles;
pub mod demand;
mod exact;
mod filling;
mod fitting;
pub mod hierarchy;
mod matching;
mod merging;
mod nesting;
pub mod objective;
mod packing;
pub mod segments;

use std::collections::{HashMap, HashSet};

use crate::arrange::bundles::{Bundles, largest_leaf};
use crate::arrange::demand::Bond;
use crate::arrange::exact::search;
use crate::arrange::fitting::{Fit, fitted};
use crate::arrange::hierarchy::UNKNOWN;
pub use crate::arrange::matching::Shortage;
use crate::arrange::matching::matched;
use crate::arrange::nesting::Nesting;
use crate::arrange::objective::{Assignment, Best, Cost, Problem};
use crate::arrange::packing::{free_nodes, packed};
use crate::arrange::segments::{Packing, Want, pack};
use crate::rank_set::RankSet;

/// A node for every node rank that needs one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// By node rank.
    pub nodes: Assignment,
    /// Its cost.
    pub cost: Cost,
    /// Whether it is proved that no arrangement costs less.
    pub optimal: bool,
    /// The bonds that it breaks: indices in [`Problem::bonds`].
    pub broken: Vec<u32>,
    /// Whether it is proved that every arrangement breaks some.
    pub impossible: bool,
}

/// The most node ranks that the exact search is tried for, and those for which it always ends.
const MOST_EXACT: usize = 24;
const SURELY_EXACT: usize = 7;

/// The states that the exact search visits at most: more than 7 node ranks on 9 nodes have, and few.
const BUDGETS: [u32; 2] = [300_000, 20_000];

/// The most nodes for which the first one of equally cheap arrangements is looked for beyond the exact search.
const MOST_DEALT: u32 = 20_000;

/// The states that the search for segments of several sizes visits at most.
const SEGMENT_BUDGET: u32 = 200_000;

/// The domains that the search for sets within sets tries at most.
const SEARCH_BUDGET: u32 = 20_000;

/// Find a node for every node rank.
///
/// # Errors
/// The classes of hardware of which there are too few nodes.
pub fn arrange(problem: &Problem) -> Result<Arrangement, Vec<Shortage>> {
    let pinned = fixed(problem, false);
    let mut staying = fixed(problem, true);
    let possible = matched(problem, &pinned, &staying)?;
    let displaced: Vec<usize> =
        (0..staying.len()).filter(|&rank| staying[rank].is_some() && staying[rank] != possible[rank]).collect();
    displaced.iter().for_each(|&rank| staying[rank] = None);
    let nesting = Nesting::of(problem);
    let mut best = None;
    consider(problem, &nesting, &staying, &possible, &mut best);
    // Moving a process is cheaper than breaking a rule: release the sets that are torn, then everything.
    let breaks = |best: &Option<Best>| best.as_ref().is_some_and(|best| best.cost[0] > 0);
    let mut released = staying;
    let mut all = !displaced.is_empty();
    if breaks(&best) {
        all = true;
        for bond in best.iter().flat_map(|best| broken(problem, &best.nodes)) {
            problem.bonds[bond as usize].ranks.iter().for_each(|&rank| released[rank as usize] = pinned[rank as usize]);
        }
        consider(problem, &nesting, &released, &possible, &mut best);
        if breaks(&best) {
            consider(problem, &nesting, &pinned, &possible, &mut best);
        }
    }
    if all {
        released.clone_from(&pinned);
    }
    let mut best = best.unwrap_or_else(|| Best { cost: problem.cost(&possible), nodes: possible });
    let open = problem.needed().filter(|&rank| released[rank as usize].is_none()).count();
    // Every state looks at every node.
    let budget = BUDGETS[usize::from(open > SURELY_EXACT)] / (1 + problem.domains.nodes() / 256);
    let met = best.cost == nesting.bound;
    // Of equally cheap arrangements of a few node ranks, the first one is found.
    let searched =
        (open <= SURELY_EXACT || !met && open <= MOST_EXACT) && search(problem, &released, &mut best, budget);
    let broken = broken(problem, &best.nodes);
    let impossible = best.cost[0] > 0
        && (met
            || searched
            || nesting.filled.is_none()
            || problem.unfit.is_empty()
                && matches!(fitted(&nesting.first_of, problem, &pinned, SEARCH_BUDGET), Fit::Impossible));
    Ok(Arrangement { nodes: best.nodes, cost: best.cost, optimal: met || searched, broken, impossible })
}

/// A lower bound of the cost of every arrangement.
pub fn bound(problem: &Problem) -> Cost {
    Nesting::of(problem).bound
}

/// By level and domain, the nodes that can be used: if `whole`, only whole units of rules that have one size each.
pub fn room(problem: &Problem, whole: bool) -> Vec<Vec<u32>> {
    Nesting::room(problem, whole)
}

/// A cheaper place for the groups of one torn set, if the whole set moves: the least arrangement in which the smallest and
/// dearest set that an arrangement tears, and that was whole before, is whole again.
pub fn moved_as_block(problem: &Problem, arrangement: &Arrangement) -> Option<Arrangement> {
    let inner = problem.domains.levels().checked_sub(1)?;
    let lost = |&rank: &u32| problem.old.get(rank as usize) == Some(&None);
    let survivors: Assignment = problem.old.clone();
    let torn = problem.demand.edges.iter().filter(|edge| edge.ranks.iter().any(lost)).filter_map(|edge| {
        let level = (0..=inner).rev().find(|&level| {
            problem.crosses(&arrangement.nodes, &edge.ranks, level) && !problem.crosses(&survivors, &edge.ranks, level)
        })?;
        Some((edge.class, edge.ranks.len(), level, edge))
    });
    let (_, _, level, edge) = torn.min_by_key(|&(class, len, level, _)| (class, len, level))?;
    let mut bonded = problem.clone();
    bonded.bonds.push(Bond { level, ranks: edge.ranks.clone(), source: u32::MAX });
    let found = arrange(&bonded).ok()?;
    (found.cost[0] == arrangement.cost[0]).then_some(found)
}

/// The node ranks that keep a node: pinned ones and, if `staying`, those that can keep the node they had.
fn fixed(problem: &Problem, staying: bool) -> Assignment {
    let mut taken = vec![false; problem.domains.nodes() as usize];
    let mut nodes = vec![None; problem.rank_class.len()];
    let old = if staying { &problem.old[..] } else { &[] };
    for wanted in [&problem.pinned[..], old] {
        for (rank, &node) in wanted.iter().enumerate() {
            let Some(node) = node.filter(|&node| !taken[node as usize]) else { continue };
            if nodes[rank].is_none() && problem.fits(rank as u32, node) {
                taken[node as usize] = true;
                nodes[rank] = Some(node);
            }
        }
    }
    nodes
}

fn broken(problem: &Problem, nodes: &Assignment) -> Vec<u32> {
    let bonds = (0..).zip(&problem.bonds);
    bonds.filter(|(_, bond)| problem.crosses(nodes, &bond.ranks, bond.level)).map(|(index, _)| index).collect()
}

/// Keep the best of several arrangements with these node ranks fixed: such that the preferred sets are within domains, if that
/// is possible, and such that they need not be.
fn consider(problem: &Problem, nesting: &Nesting, fixed: &Assignment, possible: &Assignment, best: &mut Option<Best>) {
    consider_broken(problem, nesting, fixed, possible, best);
    let preferred =
        |cost: &Cost| cost[problem.preferred_at(0)..problem.crossings_at(0, 0)].iter().any(|&more| more > 0);
    if !problem.preferred.is_empty() && best.as_ref().is_some_and(|best| preferred(&best.cost)) {
        let mut strict = problem.clone();
        strict.bonds.append(&mut strict.preferred);
        let mut found = None;
        consider_broken(&strict, &Nesting::of(&strict), fixed, possible, &mut found);
        if let Some((found, best)) = found.filter(|found| found.cost[0] == 0).zip(best.as_mut()) {
            best.offer(problem, problem.cost(&found.nodes), &found.nodes);
        }
    }
}

/// The same on nodes that suit all others, then also on those nodes with broken accelerators that a `possible` arrangement uses.
fn consider_broken(
    problem: &Problem,
    nesting: &Nesting,
    fixed: &Assignment,
    possible: &Assignment,
    best: &mut Option<Best>,
) {
    if problem.unfit.is_empty() {
        return consider_all(problem, nesting, fixed, best);
    }
    consider_all(&without_broken(problem, fixed), nesting, fixed, best);
    let mut more = fixed.clone();
    for (rank, &node) in more.iter_mut().zip(possible) {
        *rank = rank.or(node.filter(|node| problem.unfit.contains_key(node)));
    }
    if more != *fixed {
        consider_all(&without_broken(problem, &more), nesting, &more, best);
    }
}

/// The same problem without the nodes that do not suit all node ranks that are not fixed.
fn without_broken(problem: &Problem, fixed: &Assignment) -> Problem {
    let mut found = problem.clone();
    let nobody = problem.node_class.iter().chain(problem.rank_class.iter().flatten()).max().map_or(0, |&last| last + 1);
    let open: RankSet = problem.needed().filter(|&rank| fixed[rank as usize].is_none()).collect();
    let taken: HashSet<u32> = fixed.iter().flatten().copied().collect();
    for (&node, ranks) in &problem.unfit {
        if !ranks.is_disjoint(&open) && !taken.contains(&node) {
            found.node_class[node as usize] = nobody;
        }
    }
    found
}

fn consider_all(problem: &Problem, nesting: &Nesting, fixed: &Assignment, best: &mut Option<Best>) {
    let mut offer = |nodes: Option<Assignment>| {
        if let Some(nodes) = nodes {
            let cost = problem.cost(&nodes);
            match best {
                Some(best) => best.offer(problem, cost, &nodes),
                None => *best = Some(Best { cost, nodes }),
            }
        }
        best.as_ref().map_or((false, false), |best| (best.cost[0] > 0, nesting.fills_more(problem, &best.cost)))
    };
    let bundles = Bundles::of(problem, fixed, None);
    offer(in_order(problem, fixed, (0..problem.domains.nodes()).collect()));
    offer(in_order(problem, fixed, problem.domains.order().to_vec()));
    let (mut torn, mut more) = offer(packed(problem, fixed, &bundles, &[]));
    // An outer domain may have room for a group that none of its inner ones has.
    let largest = largest_leaf(problem);
    let fitting = problem.demand.edges.iter().find(|edge| edge.ranks.len() <= largest);
    if let Some(edge) = fitting.filter(|_| problem.domains.levels() > 1) {
        (torn, more) = offer(packed(problem, fixed, &Bundles::of(problem, fixed, Some(edge.class)), &[]));
    }
    if torn {
        let allotted = allotted(problem, fixed, &bundles);
        (torn, more) = offer(allotted.and_then(|allotted| packed(problem, fixed, &bundles, &allotted)));
    }
    if (torn || more || problem.domains.nodes() <= MOST_DEALT) && fixed.iter().all(Option::is_none) {
        (torn, _) = offer(nesting.dealt(problem));
    }
    if torn && let Fit::Found(leaves) = fitted(&nesting.first_of, problem, fixed, SEARCH_BUDGET) {
        offer(within(problem, fixed, &leaves));
    }
}

/// The node ranks that are not fixed on the nodes in this order.
fn in_order(problem: &Problem, fixed: &Assignment, order: Vec<u32>) -> Option<Assignment> {
    let mut taken = vec![false; problem.domains.nodes() as usize];
    fixed.iter().flatten().for_each(|&node| taken[node as usize] = true);
    let classes = problem.node_class.iter().map(|&class| class as usize + 1).max()?;
    let mut free = vec![Vec::new(); classes];
    for node in order.into_iter().rev().filter(|&node| !taken[node as usize]) {
        free[problem.node_class[node as usize] as usize].push(node);
    }
    let mut nodes = fixed.clone();
    for rank in problem.needed().filter(|&rank| fixed[rank as usize].is_none()) {
        nodes[rank as usize] = Some(free.get_mut(problem.rank_class[rank as usize]? as usize)?.pop()?);
    }
    Some(nodes)
}

/// The node ranks that are not fixed on the free nodes of these innermost domains, in order.
fn within(problem: &Problem, fixed: &Assignment, leaves: &[u32]) -> Option<Assignment> {
    let taken: HashSet<u32> = fixed.iter().flatten().copied().collect();
    let mut free: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
    for &node in problem.domains.order().iter().rev().filter(|&node| !taken.contains(node)) {
        free.entry((problem.domains.leaf(node), problem.node_class[node as usize])).or_default().push(node);
    }
    let mut nodes = fixed.clone();
    for rank in problem.needed().filter(|&rank| fixed[rank as usize].is_none()) {
        let free = free.get_mut(&(leaves[rank as usize], problem.rank_class[rank as usize]?))?;
        nodes[rank as usize] = Some(free.pop()?);
    }
    Some(nodes)
}

/// The innermost domain of every bundle of two or more nodes, where bundles of several sizes have to share domains.
fn allotted(problem: &Problem, fixed: &Assignment, bundles: &Bundles) -> Option<Vec<u32>> {
    let room = free_nodes(problem, fixed, bundles.classes);
    let of_class: Vec<Option<usize>> = (0..bundles.len())
        .map(|bundle| {
            let mut classes = (0..bundles.classes).filter(|&class| bundles.need(bundle)[class] > 0);
            classes.next().filter(|_| classes.next().is_none())
        })
        .collect();
    let mut allotted = vec![UNKNOWN; bundles.len()];
    for class in 0..bundles.classes {
        let mine = || {
            (0..bundles.len()).filter(|&bundle| of_class[bundle] == Some(class) && bundles.label[bundle] == u32::MAX)
        };
        let mut sizes: Vec<u32> = mine().map(|bundle| bundles.size(bundle)).filter(|&size| size > 1).collect();
        sizes.sort_unstable();
        let wants: Vec<Want> =
            sizes.chunk_by(|a, b| a == b).map(|same| Want { size: same[0], count: same.len() as u32 }).collect();
        let domains: Vec<u32> = room.iter().skip(class).step_by(bundles.classes).copied().collect();
        let Packing::Fits(found) = pack(&domains, &wants, SEGMENT_BUDGET) else { return None };
        let mut next: Vec<_> = found.into_iter().map(Vec::into_iter).collect();
        for bundle in mine() {
            if let Some(want) = wants.iter().position(|want| want.size == bundles.size(bundle)) {
                allotted[bundle] = next[want].next().unwrap_or(UNKNOWN);
            }
        }
    }
    Some(allotted)
}
