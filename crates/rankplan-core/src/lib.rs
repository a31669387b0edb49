//! The placement language, its checks, and the assignment of process ranks to resources.
//!
//! The modules in order of use; each one uses only those above it:
//!
//! | module | content |
//! |---|---|
//! | [`ids`], [`words`], [`diagnostic`], [`render`] | ranks and limits; English; codes and faults as text with carets |
//! | [`rank_set`] | ranges and sets of ranks |
//! | [`syntax`] | text to parts with their places |
//! | [`inventory`], [`selection`], [`pool`] | the nodes; the selected groups; the meaning of a resource rank |
//! | `fault`, `messages` | faults as numbers, and their texts |
//! | [`rank_map`], [`packed`], [`chunks`] | the rules: which resource ranks each process uses |
//! | `check` | text to a rank map: which ranges belong together, and every rule that needs no nodes |
//! | [`table`], [`columns`], [`runs`] | one row per process, stored as columns; rows as runs |
//! | `builder`, [`assign`] | a rule and a pool to a table |
//! | [`parallel`], `node_runs`, [`units`] | parallel sizes; ranges of nodes; nodes and domains |
//! | [`slots`] | the slots that the sizes divide |
//! | [`layout`] | sizes and slots to groups and coordinates |
//! | [`spans`], [`rails`] | where groups cross nodes and domains, and on which local indices |
//! | [`weights`] | which slots of one component send their weights to which slots of another |
//! | [`hierarchy`], [`segments`] | levels of the network; whole segments of nodes within domains |
//! | [`demand`], [`objective`] | what an arrangement keeps together; what it costs |
//! | `bundles`, `merging`, `packing`, `exact` | node ranks that stay together; sets of them into domains; a few of them exactly |
//! | [`arrange`] | node ranks to nodes: order, selection and repair |
//! | [`tune_problem`], `tune_steps` | components with times and sizes; schedules, and how they were put together |
//! | `tune_front`, `tune_bounds` | costs that no other beats; the time that a part of the best schedule may take |
//! | `tune_pipeline`, `tune_turns` | components beside each other; components in turn |
//! | [`tune`] | the lowest-cost schedule |
//!
//! [`place`] runs all of them. Every call reports all faults that one pass can find. No function panics on any text or
//! number.

pub mod arrange;
pub mod assign;
mod builder;
mod bundles;
mod check;
pub mod chunks;
pub mod columns;
pub mod demand;
pub mod diagnostic;
mod exact;
mod fault;
pub mod hierarchy;
pub mod ids;
pub mod inventory;
pub mod layout;
mod merging;
mod messages;
mod node_runs;
pub mod objective;
pub mod packed;
mod packing;
pub mod parallel;
pub mod pool;
pub mod rails;
pub mod rank_map;
pub mod rank_set;
pub mod render;
pub mod runs;
pub mod segments;
pub mod selection;
pub mod slots;
pub mod spans;
pub mod syntax;
pub mod table;
pub mod tune;
mod tune_bounds;
mod tune_front;
mod tune_pipeline;
pub mod tune_problem;
mod tune_steps;
mod tune_turns;
pub mod units;
pub mod weights;
pub mod words;

pub use assign::{Rule, apply, place, ranks_of};
pub use chunks::Chunks;
pub use diagnostic::{Code, Diagnostic, Label};
pub use ids::{NodeRank, ProcessRank, ResourceRank};
pub use inventory::{Inventory, NodeSpec};
pub use layout::Layout;
pub use packed::Packed;
pub use parallel::{Groups, Kind, Order, Parallel, Progression};
pub use pool::Pool;
pub use rank_map::RankMap;
pub use rank_set::{RankRange, RankSet};
pub use runs::Run;
pub use selection::{Counted, Group, ResourceKind, Selection};
pub use slots::Slots;
pub use table::{Row, Table};
pub use units::Domains;
pub use weights::WeightMap;
