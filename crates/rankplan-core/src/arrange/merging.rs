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
