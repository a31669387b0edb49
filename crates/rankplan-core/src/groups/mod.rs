//! Parallel sizes to groups of slots, and where these lie.
//!
//! The modules in order of use; each one uses only those above it:
//!
//! | module | content |
//! |---|---|
//! | [`parallel`], `node_runs`, [`units`] | parallel sizes; ranges of nodes; nodes and domains |
//! | [`slots`] | the slots that the sizes divide |
//! | [`layout`] | sizes and slots to groups and coordinates |
//! | [`spans`], [`rails`] | where groups cross nodes and domains, and on which local indices |
//! | [`slot_sets`], [`unchanged`] | slots that belong together, and those that two placements have in common |
//! | [`weights`] | which slots of one component send their weights to which slots of another |

pub mod layout;
mod node_runs;
pub mod parallel;
pub mod rails;
pub mod slot_sets;
pub mod slots;
pub mod spans;
pub mod unchanged;
pub mod units;
pub mod weights;
