//! How a schedule was put together, step by step.

use crate::tune::problem::Tree;

/// A step; the numbers are earlier steps.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A component on some units.
    Leaf {
        /// The component.
        task: usize,
        /// Its units.
        units: u32,
    },
    /// A pipeline, or its first block, and one more block.
    Pipe {
        /// The pipeline or block before it.
        before: u32,
        /// The block.
        last: u32,
    },
    /// A child and the children after it.
    Turn {
        /// The child.
        first: u32,
        /// A child, or the turns of several.
        rest: u32,
        /// Whether each is loaded for its turn.
        switching: bool,
    },
}

/// All steps so far.
#[derive(Debug, Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// Add a step and return its number.
    pub fn push(&mut self, step: Step) -> u32 {
        self.0.push(step);
        (self.0.len() - 1) as u32
    }

    /// The schedule that a step completes.
    pub fn tree(&self, step: u32) -> Tree {
        match self.0[step as usize] {
            Step::Leaf { task, units } => Tree::Leaf { task, units },
            Step::Pipe { .. } => Tree::Pipe { children: self.blocks(step) },
            Step::Turn { switching, .. } => Tree::Then { children: self.turns(step), switching },
        }
    }

    fn blocks(&self, mut step: u32) -> Vec<Tree> {
        let mut children = Vec::new();
        while let Step::Pipe { before, last } = self.0[step as usize] {
            children.push(self.tree(last));
            step = before;
        }
        children.push(self.tree(step));
        children.reverse();
        children
    }

    fn turns(&self, mut step: u32) -> Vec<Tree> {
        let mut children = Vec::new();
        while let Step::Turn { first, rest, .. } = self.0[step as usize] {
            children.push(self.tree(first));
            step = rest;
        }
        children.push(self.tree(step));
        children
    }
}
