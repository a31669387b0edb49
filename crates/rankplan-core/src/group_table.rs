//! Node groups: their environments, and hardware that is counted in place of accelerators.

use std::collections::HashSet;

use crate::diagnostic::{Code, Diagnostic};
use crate::ids::{CLUSTER, NODE};
use crate::read::names::Names;
use crate::read::place::{Fault, Place};
use crate::read::reader::{Reader, as_word, invalid, must_be};
use crate::read::record::Read;
use crate::read::shown::{all_printable, shown};
use crate::read::spelling::{CLOSE, nearest};
use crate::read::table::{Absent, Field, Kind, Table};
use crate::read::value::Value;

static AN_ENVIRONMENT: Kind = Kind::Record(&ENVIRONMENT);
static A_PIECE: Kind = Kind::Own(piece);

/// The fields of a node group.
pub static NODE_GROUP: Table = Table {
    called: None,
    groups: &[&[
        Field::new("label", Kind::Own(group_label), "Name that components select the group by.").absent(Absent::Never),
        Field::new(RANKS, Kind::Ranks, "Nodes of the group: a range such as 0-7, or all.").absent(Absent::Never),
        Field::new(
            ENVIRONMENTS,
            Kind::List { of: &AN_ENVIRONMENT, empty: true },
            "Variables and interpreters of the nodes.",
        )
        .absent(Absent::Null),
        Field::new("hardware", Kind::Record(&HARDWARE), "Hardware to count in place of accelerators.")
            .absent(Absent::Null),
        Field::new("ignore_hardware", Kind::Switch, "Count nodes, whatever hardware they have."),
    ]],
    check: None,
};

const RANKS: &str = "node_ranks";
const NODE_RANK: &str = "node_rank";
const A_RANK: Kind = Kind::Count { least: 0, most: i64::MAX };
const ENVIRONMENTS: &str = "env_configs";

static ENVIRONMENT: Table = Table {
    called: None,
    groups: &[&[
        Field::new(RANKS, Kind::Ranks, "Nodes of the group: a range such as 0-7, or all.").absent(Absent::Never),
        Field::new("env_vars", Kind::Own(variables), "Environment variables, one per line: - NAME: \"value\".")
            .absent(Absent::Null),
        Field::new("python_interpreter_path", Kind::AbsolutePath, "Absolute path of the interpreter on these nodes.")
            .absent(Absent::Null),
        Field::new(
            "path_env",
            Kind::Own(path_mode),
            "Whether PATH and other lists of folders are added to the node's, or replace it.",
        ),
    ]],
    check: None,
};

static HARDWARE: Table = Table {
    called: None,
    groups: &[&[
        Field::new("type", Kind::HardwareType, "Hardware type, e.g. Franka.").absent(Absent::Never),
        Field::new(
            "configs",
            Kind::List { of: &A_PIECE, empty: true },
            "One entry per piece, with its node_rank (default: as many as the inventory states).",
        )
        .absent(Absent::Null),
    ]],
    check: None,
};

/// The word that stands for all nodes: those of the job in a group, those of the group in its environments.
const ALL: &str = "all";
/// Variables that order the nodes, and are read before any process starts.
const NODE_RANK_VARIABLES: [&str; 2] = ["RANKPLAN_NODE_RANK", "RLINF_NODE_RANK"];
/// The variable that decides what happens to lists of folders, and its values.
const PATH_MODE_VARIABLE: &str = "RLINF_PATH_ENV_MERGE_MODE";
const PATH_MODES: [&str; 2] = ["append", "override"];
const ONE_KEY: &str = "write one-key entries: - NAME: \"value\"";

/// A node group with the ranks that `all` stands for.
pub fn with_all(group: &Value, num_nodes: i64) -> Value {
    let Value::Map(pairs) = group else { return group.clone() };
    let every = Value::from(format!("0-{}", num_nodes - 1));
    let nodes = match group.get(RANKS) {
        Some(ranks) if is_all(ranks) => every,
        Some(ranks) => ranks.clone(),
        None => Value::Null,
    };
    let pairs = pairs.iter().map(|(key, value)| {
        let value = match (key, value) {
            (Value::Text(name), _) if name == RANKS => nodes.clone(),
            (Value::Text(name), Value::List(environments)) if name == ENVIRONMENTS => {
                Value::list(environments.iter().map(|environment| with_ranks(environment, &nodes)))
            }
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    Value::Map(pairs.collect())
}

/// A mapping in which these ranks take the place of `all`.
fn with_ranks(mapping: &Value, nodes: &Value) -> Value {
    let Value::Map(pairs) = mapping else { return mapping.clone() };
    let ranks = |(key, value): &(Value, Value)| match key {
        Value::Text(name) if name == RANKS && is_all(value) => (key.clone(), nodes.clone()),
        _ => (key.clone(), value.clone()),
    };
    Value::Map(pairs.iter().map(ranks).collect())
}

fn is_all(ranks: &Value) -> bool {
    matches!(ranks, Value::Text(text) if text.trim().eq_ignore_ascii_case(ALL))
}

/// The label of a group: no reserved one, and none that a list of labels would cut.
fn group_label(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    let mut reader = Reader::new(None);
    let Some(label) = reader.read(&Kind::Label, value, at).map(Read::into_name) else { return Err(reader.faults) };
    match label_fault(&label) {
        Some(fault) => Err(vec![Fault::at(at, fault)]),
        None => Ok(Read::Text(label)),
    }
}

fn label_fault(label: &str) -> Option<Diagnostic> {
    let reserved = [(CLUSTER, "all nodes"), (NODE, "all nodes, counted as nodes")];
    if let Some((_, meaning)) = reserved.iter().find(|(name, _)| *name == label) {
        let message = format!("the label `{label}` is reserved: it always means {meaning}");
        return Some(Diagnostic::new(Code::ReservedLabel, message).help("choose another label"));
    }
    if label.trim().is_empty() {
        let fault = Diagnostic::new(Code::EmptyName, "a node group has no label".to_owned());
        return Some(fault.help("give it a label, e.g. a800"));
    }
    if label.contains(',') {
        let message = format!("the label `{label}` contains a comma");
        return Some(invalid(message, "remove the comma: commas separate labels"));
    }
    (label != label.trim()).then(|| {
        let message = format!("the label {} starts or ends with a blank", shown(&Value::from(label)));
        invalid(message, "remove the blank")
    })
}

fn path_mode(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    match value {
        Value::Text(word) if ["prepend", "replace"].contains(&word.as_str()) => Ok(Read::Text(word.clone())),
        _ => {
            let help = "remove it: PATH and other lists of folders are then prepended";
            Err(vec![Fault::at(at, must_be("`path_env`", value, "prepend or replace", help))])
        }
    }
}

/// A piece of hardware: the node that it is on, and any other fields.
fn piece(value: &Value, at: &Place<'_>, _names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    let Value::Map(pairs) = value else {
        let fault = must_be(&at.named(), value, "a mapping", "write keys and values: node_rank");
        return Err(vec![Fault::at(at, fault)]);
    };
    if !is_plain(value) {
        let message = "a hardware config contains values other than text, numbers and lists".to_owned();
        return Err(vec![Fault::at(at, invalid(message, "write plain values"))]);
    }
    let mut reader = Reader::new(None);
    let Some(stated) = value.get(NODE_RANK) else { return Err(vec![Fault::at(at, no_node_rank(pairs))]) };
    let Some(rank) = reader.read(&A_RANK, stated, &at.name(NODE_RANK)) else { return Err(reader.faults) };
    let rank = rank.plain();
    let field = |(key, value): &(Value, Value)| match key {
        Value::Text(name) if name == NODE_RANK => (key.clone(), rank.clone()),
        _ => (key.clone(), value.clone()),
    };
    Ok(Read::Plain(Value::Map(pairs.iter().map(field).collect())))
}

/// The fault of a piece of hardware that is on no node.
fn no_node_rank(pairs: &[(Value, Value)]) -> Diagnostic {
    let keys = pairs.iter().filter_map(|(key, _)| if let Value::Text(key) = key { Some(key.as_str()) } else { None });
    let help = match nearest(NODE_RANK, keys, CLOSE) {
        Some(near) => format!("rename `{near}` to `{NODE_RANK}`"),
        None => format!("add `{NODE_RANK}:` with its value"),
    };
    Diagnostic::new(Code::MissingKey, format!("`{NODE_RANK}` is missing")).help(help)
}

/// Whether JSON can represent a value.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Text(_) => true,
        Value::Float(number) => number.value.is_finite(),
        Value::List(items) => items.iter().all(is_plain),
        Value::Map(pairs) => pairs.iter().all(|(key, value)| matches!(key, Value::Text(_)) && is_plain(value)),
        Value::Ranks(_) | Value::Other(_) => false,
    }
}

/// Variables by name: a mapping, or a list of mappings with one each.
fn variables(value: &Value, at: &Place<'_>, names: Option<&Names>) -> Result<Read, Vec<Fault>> {
    let mut variables = Variables::default();
    match value {
        Value::Map(pairs) => pairs.iter().for_each(|(name, content)| variables.add(name, content, at, names)),
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                let at = at.index(index);
                match item {
                    Value::Map(pairs) if pairs.len() == 1 => variables.add(&pairs[0].0, &pairs[0].1, &at, names),
                    _ => {
                        let message = format!("{} is not a single variable", shown(item));
                        variables.faults.push(Fault::at(&at, invalid(message, ONE_KEY)));
                    }
                }
            }
        }
        _ => variables.faults.push(Fault::at(at, must_be("env_vars", value, "a list of variables", ONE_KEY))),
    }
    if variables.faults.is_empty() {
        Ok(Read::Plain(Value::Map(variables.values.into())))
    } else {
        Err(variables.faults)
    }
}

#[derive(Default)]
struct Variables {
    values: Vec<(Value, Value)>,
    names: HashSet<String>,
    faults: Vec<Fault>,
}

impl Variables {
    fn add(&mut self, name: &Value, content: &Value, at: &Place<'_>, names: Option<&Names>) {
        let name = as_word(name);
        if name.is_empty()
            || name.contains(|letter: char| letter.is_whitespace() || letter == '=')
            || !all_printable(&name)
        {
            let message = format!("{} is not the name of an environment variable", shown(&Value::from(name)));
            return self.faults.push(Fault::at(at, invalid(message, "write a name such as GLOO_SOCKET_IFNAME")));
        }
        let at = at.name(&name);
        if !self.names.insert(name.clone()) {
            let message = format!("variable `{name}` is set twice for the same nodes");
            let fault = Diagnostic::new(Code::DuplicateEnvVar, message).help("remove one of the two");
            return self.faults.push(Fault::at(&at, fault));
        }
        let reserved = names.is_some_and(|names| names.variables.contains(&name));
        match variable_text(&name, content, reserved) {
            Ok(text) => self.values.push((Value::from(name), Value::from(text))),
            Err(fault) => self.faults.push(Fault::at(&at, fault)),
        }
    }
}

/// The text of a variable, or the fault of one that a node group cannot set.
fn variable_text(name: &str, content: &Value, reserved: bool) -> Result<String, Diagnostic> {
    if reserved {
        let fault = Diagnostic::new(Code::ReservedEnvVar, format!("variable `{name}` is set by the plan"));
        return Err(fault.help("remove it: placements decide ranks and devices"));
    }
    if NODE_RANK_VARIABLES.contains(&name) {
        let message = format!("variable `{name}` orders the nodes and is read before any process starts");
        return Err(Diagnostic::new(Code::ReservedEnvVar, message).help("set it on the node before `ray start`"));
    }
    let named = format!("variable `{name}`");
    let (text, is_unicode) = match content {
        Value::Text(text) => (text.to_string(), true),
        Value::Int(number) => (number.text(), true),
        Value::Float(number) => (number.text(), true),
        Value::Other(other) if other.text.is_some() => (other.text.clone().unwrap_or_default(), false),
        _ => return Err(must_be(&named, content, "text", "write its text in quotes, e.g. \"1\"")),
    };
    if name == PATH_MODE_VARIABLE && !PATH_MODES.contains(&text.to_lowercase().as_str()) {
        let help = "write override to replace PATH and other lists of folders";
        return Err(must_be(&named, &Value::from(text), &PATH_MODES.join(" or "), help));
    }
    if text.contains('\0') || !is_unicode {
        let written = if is_unicode { shown(&Value::from(text)) } else { shown(content) };
        let message =
            format!("{named} is {written}; environment variables cannot contain NUL bytes or lone surrogates");
        return Err(invalid(message, "write plain text"));
    }
    Ok(text)
}
