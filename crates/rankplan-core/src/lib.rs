//! The placement language, its checks, and the assignment of process ranks to resources.
//!
//! The modules in order of use; each one uses only those above it:
//!
//! | module | content |
//! |---|---|
//! | [`ids`], [`words`], [`diagnostic`], [`render`] | ranks and limits; English; codes and faults as text with carets |
//! | [`rank_set`] | ranges and sets of ranks |
//! | [`syntax`] | text to parts with their places |
//! | [`read`] | values and tables of fields to what they say; faults with paths |
//! | [`machine`], [`amounts`], [`node`] | texts of hardware facts; what can be reserved; the record of a node |
//! | [`inventory`], [`selection`], [`pool`] | the nodes; the selected groups; the meaning of a resource rank |
//! | [`node_reader`] | values to an inventory |
//! | `fault`, `messages` | faults as numbers, and their texts |
//! | [`rank_map`], [`packed`], [`chunks`] | the rules: which resource ranks each process uses |
//! | `check` | text to a rank map: which ranges belong together, and every rule that needs no nodes |
//! | [`order`] | the orders in which trainers sort nodes |
//! | [`taken`], [`steps`], [`free`] | accelerators in the order taken; whole steps; first fit on what is free |
//! | [`group_names`], [`node_runs`], [`requests`], [`sorting`] | what a trainer asks Ray for: names, nodes, groups, and these with nodes as it sorts them |
//! | `group_table`, `network_table`, `memory_table`, [`cluster_reader`] | what a plan states of node groups, the network, memory and pools |
//! | [`actors`], [`reserving`] | what a trainer's actors outside these groups hold; what no node has for them |
//! | [`request_file`], [`plan_reader`], [`plan_file`] | requests in the file of a plan; values to the parts of a plan, and back |
//! | [`table`], [`columns`], [`runs`] | one row per process, stored as columns; rows as runs |
//! | `builder`, [`assign`] | a rule and a pool to a table |
//! | [`groups`] | parallel sizes to groups of slots, and where these lie |
//! | [`arrange`] | node ranks to nodes |
//! | [`tune`] | the lowest-cost schedule |
//! | [`memory`] | sizes of a model and settings of a component to bounds of its memory |
//!
//! [`place`] runs all of them. Every call reports all faults that one pass can find. No function panics on any text or
//! number.

pub mod actors;
pub mod amounts;
pub mod arrange;
pub mod assign;
mod builder;
mod check;
pub mod chunks;
pub mod cluster_reader;
pub mod columns;
pub mod counted;
pub mod diagnostic;
pub mod domains;
mod fault;
pub mod free;
pub mod group_names;
mod group_table;
pub mod groups;
pub mod ids;
pub mod inventory;
pub mod machine;
pub mod memory;
mod memory_table;
mod messages;
mod network_table;
pub mod node;
pub mod node_reader;
pub mod node_runs;
pub mod order;
pub mod packed;
pub mod pairs;
pub mod plan_file;
pub mod plan_reader;
pub mod pool;
pub mod pool_order;
pub mod rank_map;
pub mod rank_set;
pub mod read;
pub mod render;
pub mod request_file;
pub mod requests;
pub mod reserving;
pub mod runs;
pub mod selection;
pub mod sorting;
pub mod steps;
pub mod syntax;
pub mod table;
pub mod taken;
pub mod tune;
pub mod words;

pub use assign::{Rule, apply, place, ranks_of};
pub use chunks::Chunks;
pub use diagnostic::{Code, Diagnostic, Label};
pub use free::{Fill, Free, Short};
pub use group_names::GroupNames;
pub use groups::layout::Layout;
pub use groups::parallel::{Groups, Kind, Order, Parallel, Progression};
pub use groups::slot_sets::SlotSets;
pub use groups::slots::Slots;
pub use groups::units::Domains;
pub use groups::weights::WeightMap;
pub use ids::{NodeRank, ProcessRank, ResourceRank};
pub use inventory::Inventory;
pub use node::{Node, NodeSpec};
pub use node_runs::{NodeRun, NodeRuns};
pub use order::{NodeOrder, Places};
pub use packed::Packed;
pub use pool::Pool;
pub use rank_map::RankMap;
pub use rank_set::{RankRange, RankSet};
pub use requests::Requests;
pub use runs::Run;
pub use selection::{Counted, Group, ResourceKind, Selection};
pub use sorting::Sorting;
pub use table::{Row, Table};
pub use taken::{Taken, Torn};
