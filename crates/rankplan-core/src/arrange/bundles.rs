//! Node ranks that share an innermost domain in every arrangement: bonds at that level, merged.

use crate::arrange::hierarchy::UNKNOWN;
use crate::arrange::objective::{Assignment, Problem};

/// The bundles of the node ranks that are not fixed, by their first node rank.
#[derive(Debug)]
pub(crate) struct Bundles {
    /// The classes of hardware that node ranks need.
    pub classes: usize,
    /// By node rank, its bundle, or [`UNKNOWN`].
    pub of_rank: Vec<u32>,
    /// By bundle, the innermost domain of the fixed node ranks that it is bound to, or [`UNKNOWN`].
    pub label: Vec<u32>,
    /// By bundle and class, the number of node ranks.
    needs: Vec<u32>,
}

impl Bundles {
    /// The bundles of the innermost bonds and, if it is given, of the edges of a class that fit into an innermost domain.
    pub fn of(problem: &Problem, fixed: &Assignment, class: Option<usize>) -> Self {
        let ranks = problem.rank_class.len();
        let mut up: Vec<u32> = (0..ranks as u32).collect();
        let inner = problem.domains.levels().checked_sub(1);
        let bonds = problem.bonds.iter().filter(|bond| Some(bond.level) == inner).map(|bond| &bond.ranks);
        let largest = largest_leaf(problem);
        let edges = problem.demand.edges.iter().filter(|edge| Some(edge.class) == class && edge.ranks.len() <= largest);
        for ranks in bonds.chain(edges.map(|edge| &edge.ranks)) {
            let mut first = None;
            for &rank in ranks {
                let top = find(&mut up, rank);
                let first = *first.get_or_insert(top);
                // The smaller number stays on top.
                let (top, first) = (top.max(find(&mut up, first)), top.min(find(&mut up, first)));
                up[top as usize] = first;
            }
        }
        let mut label_of = vec![UNKNOWN; ranks];
        for rank in problem.needed() {
            if let Some(node) = fixed[rank as usize] {
                label_of[find(&mut up, rank) as usize] = problem.domains.leaf(node);
            }
        }
        let classes = problem.rank_class.iter().flatten().map(|class| class + 1).max().unwrap_or(1) as usize;
        let mut bundles = Bundles { classes, of_rank: vec![UNKNOWN; ranks], label: Vec::new(), needs: Vec::new() };
        let mut of_top = vec![UNKNOWN; ranks];
        for rank in problem.needed().filter(|&rank| fixed[rank as usize].is_none()) {
            let top = find(&mut up, rank) as usize;
            if of_top[top] == UNKNOWN {
                of_top[top] = bundles.label.len() as u32;
                bundles.label.push(label_of[top]);
                bundles.needs.extend(std::iter::repeat_n(0, classes));
            }
            let bundle = of_top[top];
            bundles.of_rank[rank as usize] = bundle;
            bundles.needs[bundle as usize * classes + problem.rank_class[rank as usize].unwrap_or(0) as usize] += 1;
        }
        bundles
    }

    pub fn len(&self) -> usize {
        self.label.len()
    }

    /// By class, the nodes that a bundle needs.
    pub fn need(&self, bundle: usize) -> &[u32] {
        &self.needs[bundle * self.classes..][..self.classes]
    }

    /// The number of nodes of a bundle.
    pub fn size(&self, bundle: usize) -> u32 {
        self.need(bundle).iter().sum()
    }

    /// The number of nodes of every bundle without a domain, if they are equal, two or more, and of one class.
    pub fn common_size(&self, leaf: &[u32]) -> Option<u32> {
        let mut sizes = (0..self.len()).filter(|&bundle| leaf[bundle] == UNKNOWN).map(|bundle| self.size(bundle));
        let first = sizes.next().filter(|&first| first > 1 && self.classes == 1)?;
        sizes.all(|size| size == first).then_some(first)
    }
}

/// The number of nodes of the largest innermost domain.
pub(crate) fn largest_leaf(problem: &Problem) -> usize {
    (0..problem.domains.leaves()).map(|leaf| problem.leaf_size(leaf) as usize).max().unwrap_or(0)
}

fn find(up: &mut [u32], mut at: u32) -> u32 {
    while up[at as usize] != at {
        up[at as usize] = up[up[at as usize] as usize];
        at = up[at as usize];
    }
    at
}
