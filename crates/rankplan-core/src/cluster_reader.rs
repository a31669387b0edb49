//! Reads what a plan states of its nodes and its components: the tables of its keys.
//!
//! Each value is read on its own. Python checks rules between values of several keys, such as two groups with one label:
//! plans that programs make must obey them, too.

use std::slice::from_ref;

use crate::diagnostic::Diagnostic;
use crate::group_table::{NODE_GROUP, with_all};
use crate::ids::MAX_NODES;
use crate::network_table::TOPOLOGY;
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::reader::{RESOLVE, Reader, invalid, must_be, unresolved};
use crate::read::record::Read;
use crate::read::shown::{all_printable, shown};
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;

static A_GROUP: Kind = Kind::Record(&NODE_GROUP);
static A_POOL: Kind = Kind::Record(&POOL);
const VARIABLES: Kind = Kind::Map { keys: &Kind::Name, values: &Kind::Text };
const NUM_NODES: Kind = Kind::Count { least: 1, most: MAX_NODES as i64 };
const GROUPS: &str = "node_groups";

/// What a plan states besides its components.
pub static CLUSTER: Table = Table {
    called: None,
    groups: &[&[
        Field::new("num_nodes", NUM_NODES, "Number of nodes of the job.").absent(Absent::Never),
        Field::new(
            "component_placement",
            Kind::Map { keys: &Kind::Plain, values: &Kind::Plain },
            "Nothing: a plan has its components beside the cluster.",
        )
        .absent(Absent::Null),
        Field::new(GROUPS, Kind::List { of: &A_GROUP, empty: true }, "Labelled sets of nodes.").absent(Absent::Null),
        Field::new("topology", Kind::Record(&TOPOLOGY), "Levels of the network, and what must stay within them.")
            .absent(Absent::Null),
        Field::new("exclude", Kind::Own(names), "Nodes, accelerators and domains that no component may use.")
            .absent(Absent::Null),
        Field::new(
            "pools",
            Kind::List { of: &A_POOL, empty: true },
            "Bounds on growing and shrinking, and nodes reserved for some components.",
        )
        .absent(Absent::Null),
        Field::new("accelerator_memory", Kind::Bytes, "Memory of each accelerator: 80 GiB.").absent(Absent::Null),
        Field::new("host_memory", Kind::Bytes, "Memory of each node: 2 TiB.").absent(Absent::Null),
        Field::new("environment", VARIABLES, "Environment variables of every process."),
    ]],
    check: None,
};

static LABELS: Kind = Kind::List { of: &Kind::Label, empty: true };
/// A number of accelerators.
const SIZE: Kind = Kind::Count { least: 1, most: i64::MAX };

/// A pool with components, or a reserve: nodes without processes, for the components of the pools it protects.
static POOL: Table = Table {
    called: None,
    groups: &[&[
        Field::new("name", Kind::Label, "Name of the pool; `protects` of a reserve refers to it.")
            .absent(Absent::Never),
        Field::new("components", LABELS, "Components of the pool."),
        Field::new("min_accelerators", SIZE, "Fewest accelerators of the components.").absent(Absent::Null),
        Field::new("max_accelerators", SIZE, "Most accelerators of the components.").absent(Absent::Null),
        Field::new("node_ranks", Kind::Ranks, "Nodes of a reserve: a range such as 4-5."),
        Field::new("protects", LABELS, "Pools whose components may use the nodes of a reserve."),
    ]],
    check: None,
};

/// What a plan states of its cluster, as plain values; `None` after faults.
pub fn read_cluster(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Option<Value> {
    let value = with_all_nodes(value);
    reader.record(&value, at, &CLUSTER).map(|record| record.plain())
}

/// What is stated of a cluster, as plain values, or every fault.
pub fn read_stated(content: &Value, names: &Names) -> Result<Value, Vec<Fault>> {
    let mut reader = Reader::new(Some(names));
    read_cluster(&mut reader, content, &Place::WHOLE).ok_or(reader.faults)
}

/// A cluster with the ranks that `all` stands for in its node groups.
fn with_all_nodes(cluster: &Value) -> Value {
    let Value::Map(pairs) = cluster else { return cluster.clone() };
    let mut reader = Reader::new(None);
    let stated = cluster.get("num_nodes").and_then(|number| reader.read(&NUM_NODES, number, &Place::WHOLE));
    let num_nodes = stated.map_or(1, Read::into_int);
    let pairs = pairs.iter().map(|(key, value)| match (key, value) {
        (Value::Text(name), Value::List(groups)) if name == GROUPS => {
            (key.clone(), Value::list(groups.iter().map(|group| with_all(group, num_nodes))))
        }
        _ => (key.clone(), value.clone()),
    });
    Value::Map(pairs.collect())
}

/// Names of hardware: one, or a list.
fn names(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    let items = match value {
        Value::Text(_) => from_ref(value),
        Value::List(items) => &items[..],
        _ => {
            let written = "write a list of names: [node-3, \"node-5/2\"]";
            let help = if unresolved(value) { RESOLVE } else { written };
            return Err(vec![Fault::at(at, must_be("`exclude`", value, "a list", help))]);
        }
    };
    let mut names = Vec::with_capacity(items.len());
    let mut faults = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            Value::Text(name) if !name.trim().is_empty() && all_printable(name) => {
                names.push(Read::Text(name.trim().into()));
            }
            _ => faults.push(Fault::at(&at.index(index), not_a_name(item))),
        }
    }
    if faults.is_empty() { Ok(Read::List(names)) } else { Err(faults) }
}

fn not_a_name(item: &Value) -> Diagnostic {
    let help = "write the name of a node (node-3), an accelerator (node-5/2, or its id), or a domain (nvlink=b)";
    invalid(format!("{} is not a name", shown(item)), help)
}
