//! Reads the file of a plan: the tables of its fields, and the parts of the plan with every fault.

use crate::actors::{Actors, read_actors};
use crate::amounts;
use crate::chunks::Chunks;
use crate::cluster_reader::read_cluster;
use crate::diagnostic::{Code, Diagnostic};
use crate::ids::MAX_PROCESSES;
use crate::memory_table::read_memory;
use crate::node_reader::{Stated, read_entries, read_inventory_at};
use crate::packed::Packed;
use crate::rank_map::RankMap;
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::reader::{Reader, must_be, one_of};
use crate::read::record::{Read, Record};
use crate::read::shown::{all_printable, shown};
use crate::read::spelling::{USUAL, nearest};
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;
use crate::request_file::{self, read_requests};

/// The version of a plan that is written.
pub const VERSION: i64 = 3;
/// The version in which each request has an entry of its own.
const SINGLE_REQUESTS: i64 = 2;

/// RLinf's placement modes.
pub const MODES: [&str; 4] = ["COLLOCATED", "DISAGGREGATED", "HYBRID", "AUTO"];

const NUMBER: Kind = Kind::Count { least: 0, most: u32::MAX as i64 };
const AT_LEAST_ONE: Kind = Kind::Count { least: 1, most: u32::MAX as i64 };
/// A number that is the same in every reader of JSON.
const WHOLE: Kind = Kind::Count { least: 1, most: 1 << 53 };
const PARALLEL_SIZE: Kind = Kind::Count { least: 1, most: MAX_PROCESSES as i64 };
static GROUP_LABELS: Kind = Kind::List { of: &Kind::Text, empty: false };
static A_PLACED: Kind = Kind::Record(&PLACED);

/// The fields of a component.
pub static COMPONENT: Table = Table {
    called: None,
    groups: &[
        PLACED_FIELDS,
        &[
            Field::new("visibility", Kind::Word(&["own", "node", "own-first"]), "The devices that a process sees."),
            Field::new("by_node", Kind::Switch, "Whether each node counts as one resource."),
            Field::new("parallel", Kind::Sizes(&PARALLEL), "The sizes of its parallel groups."),
            Field::new("share", Kind::Fraction, "What a reservation counts of each accelerator.").absent(Absent::Null),
            Field::new("engines", WHOLE, "Processes of an engine."),
            Field::new(
                "binding",
                Kind::Word(&["none", "node", "socket", "exclusive", "core-complex"]),
                "The CPUs of a process.",
            ),
            Field::new("memory_binding", Kind::Word(&["none", "preferred", "bind"]), "Where its memory comes from."),
            Field::new("egl", Kind::Switch, "Whether its processes render with EGL."),
            Field::new("nics", Kind::Word(&["check", "set"]), "What is done with nearby network cards."),
            Field::new("cpus_per_process", amounts::NUMBER, "CPUs that each process reserves.").absent(Absent::Null),
            Field::new("host_memory_per_process", amounts::MEMORY, "MiB of host memory that each process reserves.")
                .absent(Absent::Null),
            Field::new(MEMORY, Kind::Plain, "What it keeps in memory.").absent(Absent::Null),
            Field::new(
                "beside",
                Kind::Map { keys: &Kind::Text, values: &A_PLACED },
                "Components that the plan leaves out but that use cores exclusively.",
            ),
        ],
    ],
    check: None,
};

const MEMORY: &str = "memory";

static PLACED: Table = Table { called: None, groups: &[PLACED_FIELDS], check: None };

const PLACED_FIELDS: &[Field] = &[
    Field::new("node_groups", GROUP_LABELS, "Labels of the node groups.").absent(Absent::Never),
    Field::new("rule", Kind::Record(&RULE), "Which resources of them each process uses.").absent(Absent::Never),
];

static RULE: Table = Table {
    called: None,
    groups: &[&[
        Field::new("map", Kind::Text, "A rank map.").absent(Absent::Null),
        Field::new("chunks", Kind::Text, "Resources in any order.").absent(Absent::Null),
        Field::new("per_process", AT_LEAST_ONE, "The resources of each process, with chunks."),
        Field::new(
            "packed",
            Kind::Tuple(&[NUMBER, NUMBER, NUMBER, NUMBER]),
            "The first and the last resource, those of each process, and their distance.",
        )
        .absent(Absent::Null),
    ]],
    check: Some(one_rule),
};

/// A rule is stated in one of three ways.
fn one_rule(record: &Record) -> Option<Diagnostic> {
    let stated = ["map", "chunks", "packed"].into_iter().filter(|name| record.states(name)).count();
    (stated != 1).then(|| fault("a rule must have one of `map`, `chunks` and `packed`".to_owned()))
}

static PARALLEL: Table = Table {
    called: None,
    groups: &[&[
        Field::new("tp", PARALLEL_SIZE, "Slots that divide the tensors of a layer."),
        Field::new("cp", PARALLEL_SIZE, "Slots that divide the tokens of a sequence."),
        Field::new("ep", PARALLEL_SIZE, "Slots that divide the experts of a layer."),
        Field::new("etp", PARALLEL_SIZE, "Slots that divide the tensors of an expert."),
        Field::new("pp", PARALLEL_SIZE, "Slots that divide the layers of a model."),
        Field::new("dp", PARALLEL_SIZE, "Slots that divide the samples.").absent(Absent::Null),
        Field::new("fsdp", PARALLEL_SIZE, "Consecutive slots of a data group that shard the parameters."),
        Field::new("order", Kind::SlotOrder, "The order in which slots are numbered, fastest first."),
    ]],
    check: None,
};

/// The key of what the job of a plan states besides its placement.
pub const JOB: &str = "job";

const SPARES: &str = "spares";

const WORDS: Kind = Kind::List { of: &Kind::Text, empty: true };

/// A command that starts the processes of components on each of their nodes, without Ray.
static NODE_COMMAND: Table = Table {
    called: None,
    groups: &[&[
        Field::new("components", WORDS, "The components whose accelerators the command sees."),
        Field::new("inside", WORDS, "Components in the processes of the command."),
        Field::new("words", WORDS, "The words of the command."),
        Field::new("variables", Kind::Map { keys: &Kind::Name, values: &Kind::Text }, "Its environment."),
        Field::new("folder", Kind::Name, "The folder that it starts in.").absent(Absent::Null),
        Field::new("serves", Kind::Switch, "Whether it ends with the other commands."),
        Field::new("per_process", Kind::Switch, "Whether it starts once for each process."),
    ]],
    check: None,
};

static A_NODE_COMMAND: Kind = Kind::Record(&NODE_COMMAND);

/// What the job of a plan states besides its placement: it decides nothing about the processes.
static STATED: Table = Table {
    called: None,
    groups: &[&[
        Field::new("file", Kind::Name, "The name of the trainer's file, without its folder.").absent(Absent::Null),
        Field::new("digest", Kind::Name, "The SHA-256 digest of that file.").absent(Absent::Null),
        Field::new("overrides", WORDS, "The overrides of the trainer's config."),
        Field::new("command", Kind::Name, "The trainer's own command.").absent(Absent::Null),
        Field::new("commands", Kind::List { of: &A_NODE_COMMAND, empty: true }, "The commands of its nodes."),
        Field::new(SPARES, Kind::Plain, "The other nodes that it may use, as in `inventory`.").absent(Absent::Null),
        Field::new(
            "emit",
            Kind::Map { keys: &Kind::Name, values: &Kind::Plain },
            "The options of the file of a launcher.",
        ),
    ]],
    check: None,
};

/// Which resources each process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The segments of a placement.
    Map(RankMap),
    /// Resources in any order.
    Chunks(Chunks),
    /// The windows of the packed strategy.
    Packed(Packed),
}

/// Where processes are: node groups, and a rule on their resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The labels of the node groups.
    pub node_groups: Vec<String>,
    /// The rule.
    pub rule: Rule,
}

/// A component of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// Where it is.
    pub placed: Placed,
    /// Its other settings as they are stated, by name.
    pub settings: Value,
    /// Components that the plan leaves out but that use cores exclusively, by name.
    pub beside: Vec<(String, Placed)>,
}

/// An entry of a component.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The name of the component.
    pub name: String,
    /// Its memory settings as plain values; the model is kept as written.
    pub memory: Option<Value>,
    /// Everything else; `None` after faults.
    pub component: Option<Component>,
}

/// The parts of a plan, as far as they have no faults.
#[derive(Debug, Default)]
pub struct Saved {
    /// The nodes, and the levels that they state.
    pub inventory: Option<Stated>,
    /// What is stated of the cluster, as plain values; `None` also after faults.
    pub cluster: Option<Value>,
    /// The name of the placement mode.
    pub mode: Option<String>,
    /// The dialect of the trainer's config.
    pub dialect: Option<String>,
    /// The components, in their order.
    pub components: Vec<Entry>,
    /// The requests, and names that must be regular expressions.
    pub requests: request_file::Stated,
    /// What its job states besides, as plain values; `None` also after faults.
    pub job: Option<Value>,
    /// What the trainer's actors outside these groups hold.
    pub actors: Vec<Actors>,
    /// Every fault, in the order in which they are found.
    pub faults: Vec<Fault>,
}

/// The version of a plan that can be read, if a content is one.
pub fn known_version(content: &Value) -> Option<i64> {
    match content.get("rankplan") {
        Some(Value::Int(number)) => Some(number.value).filter(|version| [SINGLE_REQUESTS, VERSION].contains(version)),
        _ => None,
    }
}

/// The parts of a plan of this version.
///
/// Without the keys of every plan, nothing else is read. Otherwise all parts are, whatever faults the others have.
pub fn read_plan(content: &Value, version: i64, names: &Names) -> Saved {
    let mut reader = Reader::new(Some(names));
    let mut saved = read_frame(&mut reader, content);
    let part = |key| content.get(key).unwrap_or(&Value::Null);
    if reader.faults.is_empty() {
        let at = Place::WHOLE.name("inventory");
        saved.inventory = read_nodes(&mut reader, part("inventory"), &at);
        let at = Place::WHOLE.name("cluster");
        let cluster = content.get("cluster").filter(|cluster| **cluster != Value::Null);
        saved.cluster = cluster.and_then(|cluster| read_cluster(&mut reader, cluster, &at));
        saved.components = read_components(&mut reader, part("components"));
        if let Some(requests) = content.get("requests") {
            let nodes = saved.inventory.as_ref().map(|(inventory, _)| inventory.num_nodes());
            let at = Place::WHOLE.name("requests");
            saved.requests = read_requests(&mut reader, requests, &at, nodes, version == SINGLE_REQUESTS);
        }
        let job = content.get(JOB).filter(|job| **job != Value::Null);
        saved.job = job.and_then(|job| read_job(&mut reader, job, &Place::WHOLE.name(JOB)));
        if let Some(actors) = content.get("actors") {
            saved.actors = read_actors(&mut reader, actors, &Place::WHOLE.name("actors"));
        }
    }
    saved.faults = reader.faults;
    saved
}

/// A fault without a help of its own.
fn fault(message: String) -> Diagnostic {
    Diagnostic::new(Code::InvalidPlan, message)
}

/// The mode and the dialect of a plan, and whether it has the keys of every plan.
fn read_frame(reader: &mut Reader<'_>, content: &Value) -> Saved {
    for key in ["inventory", "cluster", "components"] {
        match content.get(key) {
            None => reader.add(&Place::WHOLE, fault(format!("the file is not a plan: `{key}` is missing"))),
            Some(Value::Map(_)) => {}
            Some(Value::Null) if key == "cluster" => {}
            Some(other) => {
                let found = must_be(&format!("`{key}`"), other, "a mapping", "").message;
                reader.add(&Place::WHOLE.name(key), fault(found));
            }
        }
    }
    let mode = content.get("mode").filter(|mode| **mode != Value::Null);
    let known = |mode: &Value| matches!(mode, Value::Text(name) if MODES.contains(&name.as_str()));
    if let Some(mode) = mode.filter(|mode| !known(mode)) {
        reader.add(&Place::WHOLE.name("mode"), fault(must_be("`mode`", mode, &one_of(&MODES), "").message));
    }
    let dialect = content.get("dialect").filter(|dialect| **dialect != Value::Null);
    let a_name = |name: &Value| matches!(name, Value::Text(name) if !name.is_empty() && all_printable(name));
    if let Some(dialect) = dialect.filter(|dialect| !a_name(dialect)) {
        reader.add(&Place::WHOLE.name("dialect"), fault(must_be("`dialect`", dialect, "a name", "").message));
    }
    Saved { mode: mode.and_then(text), dialect: dialect.and_then(text), ..Saved::default() }
}

fn text(value: &Value) -> Option<String> {
    if let Value::Text(text) = value { Some(text.to_string()) } else { None }
}

fn read_nodes(reader: &mut Reader<'_>, content: &Value, at: &Place<'_>) -> Option<Stated> {
    let Some(nodes) = content.get("nodes") else {
        let Value::Map(pairs) = content else { return None };
        let keys =
            pairs.iter().filter_map(|(key, _)| if let Value::Text(key) = key { Some(key.as_str()) } else { None });
        let help = match nearest("nodes", keys, USUAL) {
            Some(near) => format!("rename `{near}` to `nodes`"),
            None => "write `nodes:` with a list: - {ranks: 0-7, accelerators: 8}".to_owned(),
        };
        reader.add(at, fault("the inventory has no `nodes`".to_owned()).help(help));
        return None;
    };
    let levels = content.get("levels").filter(|levels| **levels != Value::Null);
    read_inventory_at(reader, nodes, levels, at)
}

/// What a job states, as plain values: its spares are only checked.
fn read_job(reader: &mut Reader<'_>, job: &Value, at: &Place<'_>) -> Option<Value> {
    let stated = reader.record(job, at, &STATED)?;
    if let Some(spares) = job.get(SPARES).filter(|spares| **spares != Value::Null) {
        read_entries(reader, spares, &at.name(SPARES))?;
    }
    Some(stated.plain())
}

fn read_components(reader: &mut Reader<'_>, content: &Value) -> Vec<Entry> {
    let Value::Map(pairs) = content else { return Vec::new() };
    let outer = Place::WHOLE.name("components");
    let mut entries = Vec::with_capacity(pairs.len());
    for (key, state) in pairs.iter() {
        match key {
            Value::Text(name) if all_printable(name) => {
                let at = outer.name(name);
                let component = read_component(reader, state, &at);
                let memory = state.get(MEMORY).filter(|memory| **memory != Value::Null);
                let at = at.name(MEMORY);
                let memory = memory.and_then(|memory| read_memory(reader, memory, &at)).map(Record::plain);
                entries.push(Entry { name: name.to_string(), memory, component });
            }
            _ => {
                let message = format!("the component name {} contains unprintable characters", shown(key));
                reader.add(&outer, fault(message));
            }
        }
    }
    entries
}

fn read_component(reader: &mut Reader<'_>, state: &Value, at: &Place<'_>) -> Option<Component> {
    let mut record = reader.record(state, at, &COMPONENT)?;
    let before = reader.faults.len();
    let placed = read_placed(reader, &mut record, at);
    record.take(MEMORY);
    let others = record.take("beside").map(Read::into_map).unwrap_or_default();
    let at = at.name("beside");
    let mut beside = Vec::with_capacity(others.len());
    for (name, other) in others {
        let (name, mut other) = (name.into_text(), other.into_record());
        let placed = read_placed(reader, &mut other, &at.name(&name));
        beside.extend(placed.map(|placed| (name, placed)));
    }
    beside.sort_by(|(one, _), (other, _)| one.cmp(other));
    let placed = placed?;
    (reader.faults.len() == before).then(|| Component { placed, settings: record.plain(), beside })
}

fn read_placed(reader: &mut Reader<'_>, record: &mut Record, at: &Place<'_>) -> Option<Placed> {
    let node_groups = record.take("node_groups").map(Read::into_list).unwrap_or_default();
    let rule = record.take("rule").map(Read::into_record).unwrap_or_default();
    let rule = read_rule(reader, rule, &at.name("rule"))?;
    Some(Placed { node_groups: node_groups.into_iter().map(Read::into_text).collect(), rule })
}

fn read_rule(reader: &mut Reader<'_>, mut record: Record, at: &Place<'_>) -> Option<Rule> {
    let [map, chunks, packed] = ["map", "chunks", "packed"].map(|name| record.take(name));
    let per_process = record.take("per_process").map_or(1, |number| number.into_int() as u32);
    let (text, found) = match (map, chunks, packed) {
        (Some(map), None, None) => {
            let text = map.into_text();
            let rule = RankMap::read(&text).map(Rule::Map);
            (Some(text), rule)
        }
        (None, Some(chunks), None) => {
            let text = chunks.into_text();
            let rule = Chunks::parse(&text, per_process).map(Rule::Chunks);
            (Some(text), rule.map_err(|fault| vec![fault]))
        }
        (None, None, Some(packed)) => {
            let numbers: Vec<_> = packed.into_list().into_iter().map(|number| number.into_int() as u32).collect();
            let &[start, end, per_process, stride] = &numbers[..] else { return None };
            let rule = Packed::new(start, end, per_process, stride).map(Rule::Packed);
            (None, rule.map_err(|fault| vec![fault]))
        }
        _ => return None,
    };
    let faults = match found {
        Ok(rule) => return Some(rule),
        Err(faults) => faults,
    };
    let located = |diagnostic| Fault { path: at.path(), diagnostic, text: text.clone() };
    reader.faults.extend(faults.into_iter().map(located));
    None
}
