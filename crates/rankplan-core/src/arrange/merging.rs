//! Bundles merged into larger sets while a domain has room for them, with the way back.

use crate::arrange::bundles::Bundles;
use crate::arrange::hierarchy::UNKNOWN;

/// A forest: its first trees are the bundles, and each merge adds a tree above others.
pub(crate) struct Merging<'a> {
    classes: usize,
    bundles: &'a Bundles,
    up: Vec<u32>,
    /// By tree, where its children start and end.
    children: Vec<(u32, u32)>,
    all_children: Vec<u32>,
    /// By tree, its domain, or [`UNKNOWN`].
    labels: Vec<u32>,
    /// By tree, its first bundle.
    firsts: Vec<u32>,
    /// By tree and class.
    needs: Vec<u32>,
    /// By domain and class, the nodes that are free for sets without a domain.
    room: Vec<u32>,
    /// By parent and class, the most room of one of its domains.
    most: Vec<u32>,
    decided: Vec<bool>,
}

impl<'a> Merging<'a> {
    /// Bundles by themselves. `leaf` says which of them have a domain and take no part; `room` is by domain and class, and
    /// `parents` has the parent of each domain, ascending.
    pub fn new(bundles: &'a Bundles, leaf: &[u32], room: Vec<u32>, parents: &[u32]) -> Self {
        let (classes, count) = (bundles.classes, bundles.len());
        let mut most = vec![0; (parents.last().map_or(0, |&last| last as usize) + 1) * classes];
        for (domain, &parent) in parents.iter().enumerate() {
            for class in 0..classes {
                let most = &mut most[parent as usize * classes + class];
                *most = (*most).max(room[domain * classes + class]);
            }
        }
        Merging {
            classes,
            bundles,
            up: (0..count as u32).collect(),
            children: vec![(0, 0); count],
            all_children: Vec::new(),
            labels: vec![UNKNOWN; count],
            firsts: (0..count as u32).collect(),
            needs: (0..count).flat_map(|bundle| bundles.need(bundle).iter().copied()).collect(),
            room,
            most,
            decided: leaf.iter().map(|&leaf| leaf != UNKNOWN).collect(),
        }
    }

    fn top(&mut self, mut tree: u32) -> u32 {
        while self.up[tree as usize] != tree {
            self.up[tree as usize] = self.up[self.up[tree as usize] as usize];
            tree = self.up[tree as usize];
        }
        tree
    }

    /// Merge the sets of these bundles if a domain of the parent has room: the domain `label`, if it is known. Returns whether
    /// they are together.
    pub fn merge(&mut self, members: &[u32], mut label: u32, parent: u32) -> bool {
        let mut tops: Vec<u32> = Vec::new();
        for &bundle in members {
            let top = self.top(bundle);
            if tops.last() != Some(&top) {
                tops.push(top);
            }
        }
        tops.sort_unstable();
        tops.dedup();
        for &top in &tops {
            let found = self.labels[top as usize];
            if found != UNKNOWN && label != UNKNOWN && found != label {
                return false;
            }
            label = if label == UNKNOWN { found } else { label };
        }
        let mut need = vec![0; self.classes];
        for &top in tops.iter().filter(|&&top| label == UNKNOWN || self.labels[top as usize] == UNKNOWN) {
            need.iter_mut().zip(self.need(top)).for_each(|(sum, need)| *sum += need);
        }
        let classes = self.classes;
        if label == UNKNOWN {
            let most = &self.most[parent as usize * classes..][..classes];
            if need.iter().zip(most).any(|(need, most)| need > most) {
                return false;
            }
        } else {
            let room = &mut self.room[label as usize * classes..][..classes];
            if need.iter().zip(&*room).any(|(need, room)| need > room) {
                return false;
            }
            room.iter_mut().zip(&need).for_each(|(room, need)| *room -= need);
        }
        match tops[..] {
            [] => {}
            [top] => self.labels[top as usize] = label,
            _ => self.add(&tops, label),
        }
        true
    }

    fn add(&mut self, tops: &[u32], label: u32) {
        let (tree, start) = (self.up.len() as u32, self.all_children.len() as u32);
        self.all_children.extend(tops);
        self.children.push((start, self.all_children.len() as u32));
        self.up.push(tree);
        self.labels.push(label);
        self.firsts.push(tops.iter().map(|&top| self.firsts[top as usize]).min().unwrap_or(0));
        let mut need = vec![0; self.classes];
        for &top in tops {
            self.up[top as usize] = tree;
            need.iter_mut().zip(self.need(top)).for_each(|(sum, need)| *sum += need);
        }
        self.needs.extend(need);
    }

    /// The largest sets, without bundles that had a domain before.
    pub fn tops(&self) -> impl Iterator<Item = u32> {
        (0..self.up.len() as u32).filter(|&tree| {
            self.up[tree as usize] == tree && !self.decided.get(tree as usize).is_some_and(|&known| known)
        })
    }

    /// The domain of a set.
    pub fn label(&self, top: u32) -> u32 {
        self.labels[top as usize]
    }

    /// The sets that were merged into this one; empty for a bundle.
    pub fn children(&self, tree: u32) -> &[u32] {
        let (start, end) = self.children[tree as usize];
        &self.all_children[start as usize..end as usize]
    }

    /// By class, the nodes that a set needs.
    pub fn need(&self, tree: u32) -> &[u32] {
        &self.needs[tree as usize * self.classes..][..self.classes]
    }

    /// The first bundle of a set.
    pub fn first_bundle(&self, tree: u32) -> u32 {
        self.firsts[tree as usize]
    }

    /// By domain and class, the nodes that are free for sets without a domain.
    pub fn room(&self) -> &[u32] {
        &self.room
    }

    /// Call with each bundle of a set.
    pub fn bundles_of(&self, tree: u32, mut call: impl FnMut(u32)) {
        let mut open = vec![tree];
        while let Some(tree) = open.pop() {
            if (tree as usize) < self.bundles.len() {
                call(tree);
            }
            open.extend(self.children(tree));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use crate::arrange::bundles::Bundles;
    use crate::arrange::demand::Demand;
    use crate::arrange::hierarchy::{Hierarchy, UNKNOWN};
    use crate::arrange::merging::Merging;
    use crate::arrange::objective::Problem;

    /// Domains 0 and 1 have parent 0, domain 2 has parent 1.
    const PARENTS: [u32; 3] = [0, 0, 1];

    /// Sets of bundles, each with its domain, as a map from bundle to set.
    struct Model {
        needs: Vec<[u32; 2]>,
        room: Vec<u32>,
        most: Vec<[u32; 2]>,
        sets: Vec<(BTreeSet<u32>, Option<u32>)>,
    }

    impl Model {
        /// A set that gets a domain takes room there once; sets of two domains stay apart.
        fn merge(&mut self, members: &[u32], label: Option<u32>, parent: usize) -> bool {
            let (mine, others): (Vec<_>, Vec<_>) =
                self.sets.iter().cloned().partition(|(set, _)| members.iter().any(|bundle| set.contains(bundle)));
            let labels: BTreeSet<u32> = mine.iter().filter_map(|(_, label)| *label).chain(label).collect();
            if labels.len() > 1 {
                return false;
            }
            let label = labels.first().copied();
            let waiting = mine.iter().filter(|(_, own)| own.is_none()).flat_map(|(set, _)| set);
            let mut need = [0, 0];
            for &bundle in waiting {
                let own = self.needs[bundle as usize];
                need = [need[0] + own[0], need[1] + own[1]];
            }
            let room = match label {
                Some(domain) => [self.room[domain as usize * 2], self.room[domain as usize * 2 + 1]],
                None => self.most[parent],
            };
            if need[0] > room[0] || need[1] > room[1] {
                return false;
            }
            if let Some(domain) = label {
                self.room[domain as usize * 2] -= need[0];
                self.room[domain as usize * 2 + 1] -= need[1];
            }
            self.sets = others;
            let all: BTreeSet<u32> = mine.into_iter().flat_map(|(set, _)| set).collect();
            if !all.is_empty() {
                self.sets.push((all, label));
            }
            true
        }
    }

    /// Bundles of node ranks in a row, of these sizes by class.
    fn bundles(needs: &[[u32; 2]]) -> Bundles {
        let classes: Vec<u32> =
            needs.iter().flat_map(|need| [vec![0; need[0] as usize], vec![1; need[1] as usize]].concat()).collect();
        let mut first = 0;
        let bonds = needs.iter().map(|need| {
            let ranks = first..first + need[0] + need[1];
            first = ranks.end;
            crate::arrange::demand::Bond { level: 0, ranks: ranks.collect(), source: 0 }
        });
        let problem = Problem {
            domains: Hierarchy::new(1, &[vec![0]]).unwrap_or_else(|_| unreachable!("a label per node")),
            node_class: vec![1],
            bonds: bonds.collect(),
            unfit: BTreeMap::new(),
            demand: Demand::default(),
            preferred: Vec::new(),
            balanced: Vec::new(),
            caps: Vec::new(),
            pinned: Vec::new(),
            old: Vec::new(),
            segment: 1,
            rank_class: classes.into_iter().map(Some).collect(),
        };
        let fixed = vec![None; problem.rank_class.len()];
        Bundles::of(&problem, &fixed, None)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn sets_are_merged_where_they_have_room(
            needs in prop::collection::vec((0..3_u32, 1..3_u32).prop_map(|(one, other)| [one, other]), 1..6),
            room in prop::collection::vec(0..7_u32, 6),
            decided in prop::collection::vec(prop::bool::weighted(0.2), 6),
            merges in prop::collection::vec((prop::collection::vec(0..6_u32, 1..4), prop::option::weighted(0.3, 0..3_u32), 0..2_u32), 0..8),
        ) {
            let bundles = bundles(&needs);
            prop_assert_eq!(bundles.len(), needs.len());
            let leaf: Vec<u32> = (0..needs.len()).map(|bundle| if decided[bundle] { 0 } else { UNKNOWN }).collect();
            let mut merging = Merging::new(&bundles, &leaf, room.clone(), &PARENTS);
            let most = |domains: std::ops::Range<usize>, class: usize| domains.map(|domain| room[domain * 2 + class]).max().unwrap_or(0);
            let mut model = Model {
                most: vec![[most(0..2, 0), most(0..2, 1)], [most(2..3, 0), most(2..3, 1)]],
                sets: (0..needs.len() as u32).map(|bundle| (BTreeSet::from([bundle]), None)).collect(),
                needs,
                room,
            };
            for (members, label, parent) in merges {
                let open = |bundle: &u32| leaf.get(*bundle as usize) == Some(&UNKNOWN);
                let members: Vec<u32> = members.into_iter().filter(open).collect();
                let expected = model.merge(&members, label, parent as usize);
                prop_assert_eq!(merging.merge(&members, label.unwrap_or(UNKNOWN), parent), expected);
            }
            prop_assert_eq!(merging.room(), &model.room[..]);
            let mut found = Vec::new();
            for top in merging.tops() {
                let mut set = BTreeSet::new();
                merging.bundles_of(top, |bundle| { set.insert(bundle); });
                let need = |class: usize| set.iter().map(|&bundle| model.needs[bundle as usize][class]).sum::<u32>();
                prop_assert_eq!(merging.need(top), [need(0), need(1)]);
                prop_assert_eq!(Some(&merging.first_bundle(top)), set.first());
                found.push((set, Some(merging.label(top)).filter(|&label| label != UNKNOWN)));
            }
            found.sort();
            let mut expected: Vec<_> = model.sets.into_iter()
                .filter(|(set, _)| set.iter().all(|&bundle| leaf[bundle as usize] == UNKNOWN)).collect();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
