//! The placement language, its checks and the assignment of process ranks to resources.
//!
//! The rooms, in the order in which a placement walks through them:
//!
//! | module | what it holds |
//! |---|---|
//! | [`syntax`] | text to parts with their places |
//! | [`inventory`] | what each node has |
//! | [`pool`] | what a resource rank means: nodes and their resources as prefix sums |
//! | `check` | parts to segments, and every rule that needs no nodes |
//! | [`rank_map`] | the checked map of resource ranks to process ranks |
//! | [`packed`], [`chunks`] | the other rules |
//! | [`table`], [`runs`] | one row a process, kept as columns; rows as runs |
//! | [`assign`] | a rule and a pool to a table |
//!
//! [`place`] does all of them. Faults are gathered, not thrown: one call reports everything that one look can find.
//! No function here panics on any text or number.

pub mod assign;
mod check;
pub mod chunks;
pub mod diagnostic;
mod fault;
pub mod ids;
pub mod inventory;
pub mod packed;
pub mod pool;
pub mod rank_map;
pub mod rank_set;
pub mod render;
pub mod runs;
pub mod syntax;
pub mod table;

pub use assign::{Rule, apply, place, ranks_of};
pub use chunks::Chunks;
pub use diagnostic::{Code, Diagnostic, Label};
pub use ids::{NodeRank, ProcessRank, ResourceRank};
pub use inventory::{Inventory, NodeSpec};
pub use packed::Packed;
pub use pool::{Pool, ResourceKind, Selection};
pub use rank_map::RankMap;
pub use rank_set::{RankRange, RankSet};
pub use runs::Run;
pub use table::{Row, Table};
