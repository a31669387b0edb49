//! Reads inventories: the tables of their fields, and the rules between fields.

use std::collections::HashSet;
use std::sync::Arc;

use crate::amounts::{self, Amount};
use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_LOCAL;
use crate::inventory::Inventory;
use crate::machine::MAX_CPU;
use crate::node::{COUNT, Device, Facts, IDS, NO_ACCEL, Nic, Node, NodeSpec, USUAL_TYPE};
use crate::pairs::Pairs;
use crate::rank_set::RankSet;
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::reader::{RESOLVE, Reader, invalid, must_be, unresolved};
use crate::read::record::{Read, Record};
use crate::read::shown::{all_printable, shown};
use crate::read::spelling::did_you_mean;
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;
use crate::words::{grouped, plural};

const LARGEST_SIZE: i64 = 1 << 40;
const NUMA_NODE: Kind = Kind::Count { least: 0, most: MAX_CPU as i64 };
const SIZE: Kind = Kind::Count { least: 0, most: LARGEST_SIZE };
const ACCELERATORS: Kind = Kind::Count { least: 0, most: MAX_LOCAL as i64 };
const PIECES: Kind = Kind::Count { least: 1, most: MAX_LOCAL as i64 };

static A_NIC: Kind = Kind::Record(&NIC);
static A_DEVICE: Kind = Kind::Record(&DEVICE);
static A_LISTED: Kind = Kind::Record(&LISTED);

/// The fields of a node, or of several equal ones.
pub static NODE: Table = Table { called: None, groups: &[NODE_FIELDS], check: None };

const NODE_FIELDS: &[Field] = &[
    Field::new("ranks", Kind::Ranks, "Node ranks of these equal nodes: 0-7.").absent(Absent::Never),
    Field::new(
        COUNT,
        Kind::ListOr { of: &A_LISTED, or: &ACCELERATORS },
        "Number of accelerators of each, or a list of them.",
    ),
    Field::new("accelerator_type", Kind::AcceleratorType, "NV_GPU by default.").absent(Absent::Null),
    Field::new("accelerator_model", Kind::Text, "Model of the accelerators.").absent(Absent::Empty),
    Field::new(IDS, Kind::List { of: &Kind::AcceleratorId, empty: true }, "The node's own ids, by local index.")
        .absent(Absent::Null),
    Field::new("ip", Kind::Host(".-_:%[]"), "Address.").absent(Absent::Empty),
    Field::new("hostname", Kind::Host(".-_"), "Hostname.").absent(Absent::Empty),
    Field::new("labels", Kind::Map { keys: &Kind::Text, values: &Kind::Text }, "Labels, such as those of the network."),
    Field::new(
        "hardware",
        Kind::Map { keys: &Kind::HardwareType, values: &PIECES },
        "Number of pieces of other hardware, by type.",
    ),
    Field::new("healthy", Kind::Switch, "false: no process may use the node."),
    Field::new("unhealthy", Kind::Ranks, "Local indices of accelerators that no process may use."),
    Field::new("taken", Kind::Name, "The job that has the node.").absent(Absent::Null),
    Field::new("cpus", amounts::NUMBER, "CPUs that can be reserved, as Ray, Slurm or Kubernetes counts them.")
        .absent(Absent::Null),
    Field::new("reservable_memory", amounts::MEMORY, "MiB of memory that can be reserved, likewise.")
        .absent(Absent::Null),
    Field::new("resources", amounts::CUSTOM, "Amounts of custom resources of Ray, by name."),
    Field::new(
        "numa",
        Kind::Map { keys: &NUMA_NODE, values: &Kind::Cpus },
        "CPUs that processes may use, by NUMA node.",
    ),
    Field::new("memory", Kind::Map { keys: &NUMA_NODE, values: &SIZE }, "MiB of memory, by NUMA node."),
    Field::new("sockets", Kind::List { of: &Kind::Cpus, empty: true }, "NUMA nodes of each package."),
    Field::new("cores", Kind::CpuGroups, "Threads of each physical core."),
    Field::new("caches", Kind::CpuGroups, "CPUs of each largest cache."),
    Field::new("nics", Kind::List { of: &A_NIC, empty: true }, "Network cards."),
    Field::new("devices", Kind::List { of: &A_DEVICE, empty: true }, "Facts of each accelerator."),
];

static NIC: Table = Table {
    called: None,
    groups: &[&[
        Field::new("name", Kind::Name, "Name.").absent(Absent::Never),
        Field::new("active", Kind::Switch, "Whether its first port is active."),
        Field::new("bonded", Kind::Switch, "Whether it is part of a bond."),
        Field::new("rate", Kind::Number { least: 0.0, most: 1_000_000.0 }, "Gbit/s.").absent(Absent::Null),
        Field::new("pci", Kind::PciAddress, "PCI address.").absent(Absent::Null),
        Field::new("numa", NUMA_NODE, "NUMA node.").absent(Absent::Null),
    ]],
    check: None,
};

static DEVICE: Table = Table { called: None, groups: &[DEVICE_FIELDS], check: None };

/// An accelerator in a list of those of a node.
static LISTED: Table = Table {
    called: Some(("an accelerator", "write {id: GPU-5c89}, for example")),
    groups: &[
        &[
            Field::new("id", Kind::AcceleratorId, "The node's own id of it."),
            Field::new("healthy", Kind::Flag, "false: no process may use it."),
        ],
        DEVICE_FIELDS,
    ],
    check: None,
};

const DEVICE_FIELDS: &[Field] = &[
    Field::new("uuid", Kind::Text, "Its id for the driver.").absent(Absent::Null),
    Field::new("pci", Kind::PciAddress, "PCI address.").absent(Absent::Null),
    Field::new("numa", NUMA_NODE, "NUMA node.").absent(Absent::Null),
    Field::new("model", Kind::Text, "Model.").absent(Absent::Null),
    Field::new("memory", SIZE, "MiB of memory.").absent(Absent::Null),
    Field::new("nic", Kind::Text, "The network card to use.").absent(Absent::Null),
    Field::new("distance", Kind::Distance, "How far that card is.").absent(Absent::Null),
    Field::new("problem", Kind::Text, "Why it is not healthy.").absent(Absent::Null),
];

/// An inventory, and the levels of the network that it states.
pub type Stated = (Inventory, Option<Vec<String>>);

/// The nodes and the levels of an inventory, given the values of its keys `nodes` and `levels`.
///
/// # Errors
/// Every fault, in the order in which they are found.
pub fn read_inventory(nodes: &Value, levels: Option<&Value>, names: &Names) -> Result<Stated, Vec<Fault>> {
    let mut reader = Reader::new(Some(names));
    let stated = read_inventory_at(&mut reader, nodes, levels, &Place::WHOLE);
    if let Some((inventory, Some(levels))) = &stated {
        let at_levels = Place::WHOLE.name("levels");
        for (index, fault) in unlabelled(levels, inventory) {
            reader.add(&at_levels.index(index), fault);
        }
    }
    match stated {
        Some(stated) if reader.faults.is_empty() => Ok(stated),
        _ => Err(reader.faults),
    }
}

/// The same of an inventory at a place; `None` after faults. The nodes of a plan may lack the labels of a level.
pub fn read_inventory_at(
    reader: &mut Reader<'_>,
    nodes: &Value,
    levels: Option<&Value>,
    at: &Place<'_>,
) -> Option<Stated> {
    let before = reader.faults.len();
    let at_levels = at.name("levels");
    let levels = levels.and_then(|levels| read_levels(reader, levels, &at_levels));
    let inventory = read_entries(reader, nodes, &at.name("nodes"))?;
    (reader.faults.len() == before).then_some((inventory, levels))
}

/// The inventory of a list of entries; `None` after a fault.
pub fn read_entries(reader: &mut Reader<'_>, nodes: &Value, at: &Place<'_>) -> Option<Inventory> {
    let entries = read_nodes(reader, nodes, at)?;
    Inventory::new(entries).map_err(|fault| reader.add(at, fault)).ok()
}

fn read_nodes(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Option<Vec<(RankSet, Arc<Node>)>> {
    let Value::List(items) = value else {
        reader.add(at, must_be(&at.named(), value, "a list", "write a list: one `- ...` per line, or [a, b]"));
        return None;
    };
    if items.is_empty() {
        reader.add(at, invalid(format!("{} is empty", at.named()), "list at least one"));
        return None;
    }
    let nodes: Vec<_> =
        items.iter().enumerate().map(|(index, item)| read_node(reader, item, &at.index(index))).collect();
    // Records that are made one after the other, without their texts between, are read faster.
    nodes.into_iter().map(|node| node.map(|(ranks, node)| (ranks, Arc::new(node)))).collect()
}

/// The ranks and the record of an entry of an inventory.
pub fn read_node(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Option<(RankSet, Node)> {
    let mut record = reader.record(value, at, &NODE)?;
    let ranks = record.take("ranks").map(Read::into_ranks).unwrap_or_default();
    let mut node = Node::new(NodeSpec::usual(0));
    let mut stated: Vec<_> = std::iter::once("ranks").chain(record.0.iter().map(|(name, _)| *name)).collect();
    let before = reader.faults.len();
    let counted = set_accelerators(&mut node, &mut record, reader, at);
    set(&mut node, record);
    add_listed(&mut stated, &counted);
    node.stated = stated;
    check(&node, reader, at);
    (reader.faults.len() == before).then_some((ranks, node))
}

/// Set fields of a record; null clears one that may be missing. Returns the ranks if they are among the fields.
///
/// # Errors
/// Every fault.
pub fn change(node: &mut Node, fields: &[(String, Value)]) -> Result<Option<RankSet>, Vec<Fault>> {
    let (mut reader, mut record) = (Reader::new(None), Record::default());
    for (name, value) in fields {
        let at = Place::WHOLE.name(name);
        match NODE.field(name) {
            None => {
                let fault = Diagnostic::new(Code::UnknownKey, format!("unknown key `{name}`"));
                reader.add(&at, fault.help(did_you_mean(name, &NODE.names(), "use one of")));
            }
            Some(field) if *value == Value::Null && field.absent != Absent::Missing => clear(node, field.name),
            Some(field) => record.0.extend(reader.read(&field.kind, value, &at).map(|read| (field.name, read))),
        }
    }
    if !reader.faults.is_empty() {
        return Err(reader.faults);
    }
    let ranks = record.take("ranks").map(Read::into_ranks);
    let mut stated: Vec<_> = record.0.iter().map(|(name, _)| *name).collect();
    if stated.iter().any(|name| [COUNT, IDS, "accelerator_type", "devices"].contains(name)) {
        keep_accelerators(node, &mut record);
        let counted = set_accelerators(node, &mut record, &mut reader, &Place::WHOLE);
        add_listed(&mut stated, &counted);
    }
    set(node, record);
    check(node, &mut reader, &Place::WHOLE);
    stated.retain(|name| !node.states(name));
    node.stated.extend(stated);
    if reader.faults.is_empty() { Ok(ranks) } else { Err(reader.faults) }
}

fn clear(node: &mut Node, field: &str) {
    match field {
        "accelerator_model" => node.model = None,
        "ip" => node.ip = None,
        "hostname" => node.hostname = None,
        "taken" => node.taken = None,
        "cpus" => node.reservable.cpus = None,
        "reservable_memory" => node.reservable.memory = None,
        _ => {}
    }
}

/// Add what a record knows of its accelerators to fields that do not state it.
fn keep_accelerators(node: &Node, record: &mut Record) {
    let states = |name: &str| record.states(name);
    let known = &node.accelerators;
    let mut kept = Vec::new();
    if !states(COUNT) && !states(IDS) {
        kept.push((COUNT, Read::Int(known.accelerator_ids.len() as i64)));
        if node.states(IDS) {
            kept.push((IDS, Read::List(known.accelerator_ids.iter().map(|id| Read::Text(id.into())).collect())));
        }
    }
    if !states("accelerator_type") && known.accelerator_type != NO_ACCEL {
        kept.push(("accelerator_type", Read::Text(known.accelerator_type.as_str().into())));
    }
    record.0.extend(kept);
}

/// What an entry says of its accelerators.
struct Counted {
    /// Their number, by itself or as a list; else that of their ids.
    number: usize,
    /// Whether they are listed, and if so, whether any has an id, and any is not healthy.
    listed: Option<(bool, bool)>,
}

/// Add the fields that a list of accelerators states to the stated ones.
fn add_listed(stated: &mut Vec<&'static str>, counted: &Counted) {
    let (ids, broken) = counted.listed.unwrap_or_default();
    let more =
        [(COUNT, stated.contains(&IDS)), ("devices", counted.listed.is_some()), (IDS, ids), ("unhealthy", broken)];
    for (name, states) in more {
        if states && !stated.contains(&name) {
            stated.push(name);
        }
    }
}

/// Set the type, the ids and the facts of the accelerators: of a number of them, of a list, or of ids alone.
fn set_accelerators(node: &mut Node, record: &mut Record, reader: &mut Reader<'_>, at: &Place<'_>) -> Counted {
    let mut ids = record.take(IDS).map(texts);
    let mut devices = record.take("devices").map(|list| list.into_list().into_iter().map(device).collect());
    let mut counted = Counted { number: ids.as_ref().map_or(0, Vec::len), listed: None };
    match record.take(COUNT) {
        Some(Read::List(listed)) => {
            counted.number = listed.len();
            let mut names = Vec::with_capacity(listed.len());
            let (mut broken, mut any_id) = (Vec::new(), false);
            let mut facts = Vec::with_capacity(listed.len());
            for (index, one) in listed.into_iter().enumerate() {
                let mut one = one.into_record();
                let id = one.take("id");
                any_id |= id.is_some();
                names.push(id.map_or_else(|| index.to_string(), Read::into_text));
                if one.take("healthy") == Some(Read::Bool(false)) {
                    broken.push(index as u32);
                }
                facts.push(device(Read::Record(one)));
            }
            if facts.iter().all(|device| *device == Device::default()) {
                facts.clear();
            }
            devices = Some(facts);
            counted.listed = Some((any_id, !broken.is_empty()));
            ids = if any_id { Some(names) } else { ids };
            if !broken.is_empty() {
                record.take("unhealthy");
                node.unhealthy = broken.into_iter().collect();
            }
        }
        Some(number) => counted.number = number.into_int() as usize,
        None => {}
    }
    if let Some(ids) = &ids {
        check_ids(ids, counted.number, reader, at);
    }
    let kind = record.take("accelerator_type").map(Read::into_text);
    if counted.number > 0 && kind.as_deref() == Some(NO_ACCEL) {
        let accelerators = counted_things(counted.number, "accelerator");
        let help = "write their type, e.g. NV_GPU, or remove the accelerators";
        reader.add(at, contradiction(format!("{accelerators} of type {NO_ACCEL}"), help));
    }
    let mut accelerators = NodeSpec::usual(counted.number);
    if let Some(kind) = kind.filter(|kind| counted.number > 0 && kind != NO_ACCEL && kind != USUAL_TYPE) {
        Arc::make_mut(&mut accelerators).accelerator_type = kind;
    }
    if let Some(ids) = ids {
        Arc::make_mut(&mut accelerators).accelerator_ids = ids;
    }
    node.accelerators = accelerators;
    if let Some(devices) = devices {
        Arc::make_mut(&mut node.facts).devices = devices;
    }
    counted
}

/// `1 accelerator`, `2,048 accelerators`.
fn counted_things(number: usize, noun: &'static str) -> String {
    format!("{} {}", grouped(number as u64), plural(number as u32, noun))
}

fn contradiction(message: String, help: &str) -> Diagnostic {
    Diagnostic::new(Code::InvalidInventory, message).help(help)
}

fn check_ids(ids: &[String], number: usize, reader: &mut Reader<'_>, at: &Place<'_>) {
    if ids.len() != number {
        let message = format!("{number} accelerators, but {}", counted_things(ids.len(), "accelerator id"));
        reader.add(at, contradiction(message, "list one id per accelerator, or remove `accelerators`"));
    }
    let mut seen = HashSet::new();
    let twice = |id: &&String| ids.iter().filter(|other| other == id).nth(1).is_some();
    if ids.iter().any(|id| !seen.insert(id))
        && let Some(id) = ids.iter().find(twice)
    {
        let message = format!("accelerator id {id} is listed twice for one node");
        reader.add(at, contradiction(message, "list each accelerator once"));
    }
}

/// Record what contradicts itself.
fn check(node: &Node, reader: &mut Reader<'_>, at: &Place<'_>) {
    let (facts, number) = (&node.facts, node.num_accelerators() as usize);
    let numa: Vec<_> = facts.numa.iter().map(|(_, cpus)| cpus).collect();
    for (name, sets) in
        [("numa", numa), ("cores", facts.cores.iter().collect()), ("caches", facts.caches.iter().collect())]
    {
        if let Some(cpu) = repeated(&sets) {
            let message = format!("CPU {cpu} is in two entries of `{name}`");
            reader.add(at, contradiction(message, "list each CPU once"));
        }
    }
    if !facts.devices.is_empty() && facts.devices.len() != number {
        let message = format!("{number} accelerators, but facts of {}", facts.devices.len());
        reader.add(at, contradiction(message, "list all accelerators under `accelerators`"));
    }
    if let Some(last) = node.unhealthy.last().filter(|&last| last as usize >= number) {
        let message = format!("accelerator {last} is unhealthy, but the node has {number}");
        reader.add(at, contradiction(message, "count accelerators from 0"));
    }
}

/// The first member of a set that an earlier one has, too.
fn repeated(sets: &[&RankSet]) -> Option<u32> {
    let mut seen = RankSet::default();
    for set in sets {
        if let Some(both) = seen.intersection(set).nth(0) {
            return Some(both);
        }
        seen = seen.union(set);
    }
    None
}

/// Set the fields of a record that are read but for those of accelerators.
fn set(node: &mut Node, record: Record) {
    for (name, read) in record.0 {
        match name {
            "accelerator_model" => node.model = Some(read.into_text()),
            "ip" => node.ip = Some(read.into_name()),
            "hostname" => node.hostname = Some(read.into_name()),
            "labels" => {
                node.labels =
                    read.into_map().into_iter().map(|(key, label)| (key.into_name(), label.into_name())).collect()
            }
            "hardware" => {
                node.hardware = read
                    .into_map()
                    .into_iter()
                    .map(|(kind, number)| (kind.into_text(), number.into_int() as u32))
                    .collect()
            }
            "healthy" => node.healthy = read.into_bool(),
            "unhealthy" => node.unhealthy = read.into_ranks(),
            "taken" => node.taken = Some(read.into_text()),
            "cpus" => node.reservable.cpus = Some(Amount::new(read.into_float())),
            "reservable_memory" => node.reservable.memory = Some(read.into_int() as u64),
            "resources" => node.reservable.custom = amounts::custom(read),
            _ => set_fact(Arc::make_mut(&mut node.facts), name, read),
        }
    }
}

fn set_fact(facts: &mut Facts, name: &str, read: Read) {
    let sets = |read: Read| read.into_list().into_iter().map(Read::into_ranks).collect();
    match name {
        "numa" => facts.numa = by_node(read, Read::into_ranks),
        "memory" => facts.memory = by_node(read, |size| size.into_int() as u64),
        "sockets" => facts.sockets = sets(read),
        "cores" => facts.cores = sets(read),
        "caches" => facts.caches = sets(read),
        "nics" => facts.nics = read.into_list().into_iter().map(nic).collect(),
        "devices" => facts.devices = read.into_list().into_iter().map(device).collect(),
        _ => {}
    }
}

fn by_node<T>(read: Read, value: impl Fn(Read) -> T) -> Pairs<u32, T> {
    read.into_map().into_iter().map(|(node, read)| (node.into_int() as u32, value(read))).collect()
}

fn texts(read: Read) -> Vec<String> {
    read.into_list().into_iter().map(Read::into_text).collect()
}

fn nic(read: Read) -> Nic {
    let mut record = read.into_record();
    Nic {
        name: record.take("name").map(Read::into_text).unwrap_or_default(),
        active: record.take("active").is_none_or(Read::into_bool),
        bonded: record.take("bonded").is_some_and(Read::into_bool),
        rate: record.take("rate").map(Read::into_float),
        pci: record.take("pci").map(Read::into_text),
        numa: record.take("numa").map(|node| node.into_int() as u32),
    }
}

fn device(read: Read) -> Device {
    let mut record = read.into_record();
    let mut text = |name| record.take(name).map(Read::into_text);
    let (uuid, pci, model) = (text("uuid"), text("pci"), text("model"));
    let (nic, distance, problem) = (text("nic"), text("distance"), text("problem"));
    let numa = record.take("numa").map(|node| node.into_int() as u32);
    let memory = record.take("memory").map(|size| size.into_int() as u64);
    Device { uuid, pci, numa, model, memory, nic, distance, problem }
}

/// The levels of the network: keys of labels, outermost first. `None` after faults.
pub fn read_levels(reader: &mut Reader<'_>, value: &Value, at: &Place<'_>) -> Option<Vec<String>> {
    let Value::List(items) = value else {
        let help = "write a list of label keys, outermost first: [block, nvlink]";
        let help = if unresolved(value) { RESOLVE } else { help };
        reader.add(at, must_be("`levels`", value, "a list", help));
        return None;
    };
    let before = reader.faults.len();
    let mut levels: Vec<String> = Vec::with_capacity(items.len());
    let mut twice: Option<&String> = None;
    for (index, item) in items.iter().enumerate() {
        match item {
            Value::Text(key) if !key.trim().is_empty() && all_printable(key) && key != INNERMOST => {
                levels.push(key.to_string());
            }
            Value::Text(key) if key == INNERMOST => {
                let message = format!("the level `{INNERMOST}` is always the innermost one");
                reader.add(&at.index(index), invalid(message, "remove it, or rename the label"));
            }
            _ => {
                let message = format!("{} is not a level", shown(item));
                reader.add(&at.index(index), invalid(message, "write the key of a node label"));
            }
        }
    }
    for (index, level) in levels.iter().enumerate() {
        if twice.is_none() && levels[index + 1..].contains(level) {
            twice = Some(level);
        }
    }
    if let Some(level) = twice {
        let help = "list each level once, outermost first";
        reader.add(at, invalid(format!("level `{level}` is listed twice"), help));
    }
    (reader.faults.len() == before).then_some(levels)
}

/// The innermost level of every cluster; it needs no label.
pub const INNERMOST: &str = "node";

/// The index and the fault of each level that is the key of no label.
pub fn unlabelled(levels: &[String], inventory: &Inventory) -> Vec<(usize, Diagnostic)> {
    let keys = inventory.label_keys();
    let fault = |level: &str| {
        let known: Vec<_> = keys.keys().copied().collect();
        let help = did_you_mean(level, &known, "the labels are");
        let help = if help.is_empty() { "add labels to the nodes".to_owned() } else { help };
        Diagnostic::new(Code::UnknownLevel, format!("no node has the label `{level}`")).help(help)
    };
    let missing = levels.iter().enumerate().filter(|(_, level)| !keys.contains_key(level.as_str()));
    missing.map(|(index, level)| (index, fault(level))).collect()
}
