//! The file of a plan: read and written without Python.

use rankplan_core::plan_file::{self, Parts};
use rankplan_core::plan_reader::{Rule, Saved, known_version, read_plan};
use rankplan_core::read::names::Names;
use rankplan_core::read::parse::parse;
use rankplan_core::read::place::{in_order, path_text};
use rankplan_core::read::value::Value;

const PLAN: &str = r#"{
"rankplan": 3,
"inventory": {"levels": ["rack"], "nodes": [{"accelerators": 4, "cpus": 12.5, "labels": {"rack": "a"}, "ranks": "0-1", "reservable_memory": 4096, "resources": {"license": 2}}, {"accelerators": 4, "hostname": "h", "labels": {"rack": "b"}, "ranks": "2"}]},
"cluster": {"num_nodes": 3},
"mode": "HYBRID",
"dialect": "verl",
"requests": [{"bundles": [[4, 1]], "component": "actor", "groups": 3, "names": {"before": "g:", "first": 0}, "nodes": [[0, 3, 4]], "order": "text", "reserve": [{"cpus": 1.5, "memory": 1024, "resources": {"license": 0.25}}]}],
"job": {"command": "bash run.sh", "commands": [{"components": ["actor"], "inside": ["engine"], "serves": true, "variables": {"A": "1"}, "words": ["trl", "grpo"]}], "digest": "0f", "emit": {"queue": "research", "to": "kuberay"}, "file": "run.sh", "overrides": ["a=1"]},
"actors": [{"cpus": 10, "name": "trainer"}, {"brief": true, "count": 2, "cpus": 1, "each_node": true, "name": "builder"}],
"components": {
  "actor": {"node_groups": ["cluster"], "rule": {"map": "0-11:0-11"}, "parallel": {"tp": 2, "order": "tp-cp-ep-pp-dp"}, "share": 0.5, "memory": {"training": "fsdp"}},
  "engine": {"node_groups": ["a", "b"], "rule": {"chunks": "3,0-1", "per_process": 3}, "binding": "node", "beside": {"z": {"node_groups": ["cluster"], "rule": {"packed": [0, 7, 2, 1]}}}},
  "\u00e9": {"node_groups": ["node"], "rule": {"packed": [0, 2, 1, 1]}, "by_node": true, "engines": 2}
}
}
"#;

fn names() -> Names {
    Names { accelerators: vec!["NV_GPU".to_owned()], hardware: Vec::new(), variables: vec!["RANK".to_owned()] }
}

fn content(text: &str) -> Value {
    parse(text).unwrap_or(Value::Null)
}

fn saved(text: &str) -> Saved {
    let content = content(text);
    let version = known_version(&content).unwrap_or_default();
    read_plan(&content, version, &names())
}

/// The faults of a plan in which a text is replaced.
fn faults(from: &str, to: &str) -> Vec<String> {
    assert!(PLAN.contains(from), "{from}");
    let text = PLAN.replacen(from, to, 1);
    let faults = in_order(saved(&text).faults, &content(&text));
    faults.iter().map(|fault| format!("{}: {}", path_text(&fault.path), fault.diagnostic.message)).collect()
}

fn rule(rule: &Rule) -> rankplan_core::Rule<'_> {
    match rule {
        Rule::Map(map) => rankplan_core::Rule::Map(map),
        Rule::Chunks(chunks) => rankplan_core::Rule::Chunks(chunks),
        Rule::Packed(packed) => rankplan_core::Rule::Packed(packed),
    }
}

#[test]
fn a_plan_is_written_as_it_was_read() {
    let saved = saved(PLAN);
    assert_eq!(saved.faults, []);
    let (inventory, levels) = saved.inventory.expect("the nodes have no fault");
    let components = saved.components.into_iter().map(|entry| {
        let mut component = entry.component.expect("the component has no fault");
        let placed =
            |place: rankplan_core::plan_reader::Placed| plan_file::placed(place.node_groups, rule(&place.rule).value());
        if let (Value::Map(settings), Some(memory)) = (&component.settings, entry.memory) {
            let memory = (Value::from("memory"), memory);
            component.settings = Value::Map(settings.iter().cloned().chain([memory]).collect());
        }
        let beside = component.beside.into_iter().map(|(name, place)| (name, placed(place))).collect();
        (entry.name, plan_file::component(placed(component.placed), &component.settings, beside))
    });
    let parts = Parts {
        actors: &saved.actors,
        inventory: &inventory,
        levels: levels.as_deref(),
        cluster: saved.cluster.unwrap_or(Value::Null),
        mode: saved.mode.as_deref(),
        dialect: saved.dialect.as_deref(),
        requests: &saved.requests.requests,
        job: saved.job.unwrap_or(Value::Null),
    };
    assert_eq!(plan_file::text(&plan_file::content(parts, components.collect())), PLAN);
}

#[test]
fn every_part_has_its_faults() {
    for (from, to, expected) in [
        ("\"count\": 2", "\"count\": 0", "actors[1].count: `count` is 0; it must be 1 or more"),
        (
            "{\"cpus\": 1.5,",
            "{}, {\"cpus\": 1.5,",
            "requests[0].reserve: `bundles` has 1 entry, but `reserve` has 2 entries",
        ),
        ("\"memory\": 1024", "\"memory\": -1", "requests[0].reserve[0].memory: `memory` is -1; it must be 0 or more"),
        ("\"cluster\": {\"num_nodes\": 3},\n", "", ": the file is not a plan: `cluster` is missing"),
        ("\"HYBRID\"", "1", "mode: `mode` is 1; it must be COLLOCATED, DISAGGREGATED, HYBRID or AUTO"),
        ("\"nodes\": [", "\"node\": [", "inventory: the inventory has no `nodes`"),
        ("\"ranks\": \"2\"", "\"ranks\": \"3\"", "inventory.nodes: node rank 2 is missing, but 3 is listed"),
        ("\"a=1\"", "1", "job.overrides[0]: `overrides[0]` is 1; it must be text"),
        ("\"digest\"", "\"digests\"", "job.digests: unknown key `digests`"),
        ("[[0, 3, 4]]", "[[1, 3, 4]]", "requests[0].nodes: a bundle is on node 3, but the plan has 3"),
        ("\"share\": 0.5", "\"share\": 2", "components.actor.share: `share` is 2; it must be 1.0 or less"),
        ("\"tp\": 2", "\"tp\": 0", "components.actor.parallel.tp: `tp` is 0; it must be 1 or more"),
        (
            "{\"map\": \"0-11:0-11\"}",
            "{}",
            "components.actor.rule: a rule must have one of `map`, `chunks` and `packed`",
        ),
        ("\"0-11:0-11\"", "\"0-11:1-12\"", "components.actor.rule: process ranks start at 1; they must start at 0"),
        ("[0, 7, 2, 1]", "[0, 7, 2, 0]", "components.engine.beside.z.rule: stride is 0; it must be at least 1"),
        (
            "\"binding\": \"node\"",
            "\"binding\": \"nod\"",
            "components.engine.binding: `binding` is 'nod'; it must be none, node, socket, exclusive or core-complex",
        ),
        ("\\u00e9", "\\u0007", "components: the component name '\\x07' contains unprintable characters"),
    ] {
        assert_eq!(faults(from, to), [expected]);
    }
}

#[test]
fn other_versions_are_not_known() {
    for text in [r#"{"rankplan": 1}"#, r#"{"rankplan": 4}"#, r#"{"rankplan": "3"}"#, r#"{"rankplan": 3.0}"#, "{}", "[]"]
    {
        assert_eq!(known_version(&content(text)), None, "{text}");
    }
    assert_eq!(known_version(&content(r#"{"rankplan": 2}"#)), Some(2));
}

#[test]
fn no_damaged_text_panics() {
    let letters: Vec<char> = PLAN.chars().collect();
    for at in 0..letters.len() {
        for other in ["", "0", "9", "-", "[", "}", "\"", "null"] {
            let text: String =
                letters[..at].iter().collect::<String>() + other + &letters[at + 1..].iter().collect::<String>();
            if let Some(content) = parse(&text)
                && let Some(version) = known_version(&content)
            {
                let _ = read_plan(&content, version, &names());
            }
        }
    }
}
