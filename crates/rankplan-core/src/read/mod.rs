//! Reads values by tables of fields, and collects every fault with its path.
//!
//! | file | input | output |
//! |---|---|---|
//! | `value.rs` | | what a file or a program states, before anything is known about it |
//! | `shown.rs` | a value | its text in a message |
//! | `json.rs` | a value | JSON |
//! | `parse.rs` | JSON | a value |
//! | `spelling.rs` | a word, and the known ones | the one that it may be a misspelling of |
//! | `place.rs` | | where a value is; a fault with its path |
//! | `record.rs` | | what values say |
//! | `names.rs` | | the names that a program has registered |
//! | `table.rs` | | the fields of a mapping: name, kind, bounds |
//! | `reader.rs` | a value and a kind | what it says, or faults |

pub mod json;
pub mod names;
pub mod parse;
pub mod place;
pub mod reader;
pub mod record;
pub mod shown;
pub mod spelling;
pub mod table;
pub mod value;
