"""The cluster section: every rule with its words and its place in a YAML file, and the ways of writing one thing."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any, Literal

import pytest
import rankplan
import test_assignment
import test_language
import test_parallel
import test_tune
from omegaconf import OmegaConf
from pydantic import ConfigDict, field_validator
from rankplan import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    HardwareConfig,
    Inventory,
    NodePlacementStrategy,
    PlacementError,
    Plan,
    load_config,
    register_hardware,
)
from rankplan.dialects.rlinf import dialect as rlinf

TWO_BY_FOUR = Inventory.uniform(num_nodes=2, num_accelerators=4)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(text: str) -> ComponentPlacement:
    Path("conf.yaml").write_text(text)
    return ComponentPlacement(load_config("conf.yaml"), TWO_BY_FOUR)


# ------------------------------------------------------------------------------------------------------ refusals


def section(rest: str, num_nodes: object = 2) -> str:
    return f"cluster:\n  num_nodes: {num_nodes}\n" + rest


def placements(rest: str) -> str:
    """A file whose line 4 is the first of ``rest``, in ``component_placement``."""
    return section("  component_placement:\n" + "".join(f"    {line}\n" for line in rest.splitlines()))


def group(rest: str) -> str:
    """A file whose line 6 is the first of ``rest``, in a node group ``g``."""
    head = "  component_placement: {a: 0}\n  node_groups:\n    - label: g\n"
    return section(head + "".join(f"      {line}\n" for line in rest.splitlines()))


def two_groups(first: str, second: str) -> str:
    """A file with two node groups ``g`` (line 5) and ``h``, both of which the component on line 3 selects."""
    head = "  component_placement: {a: {node_group: [g, h], placement: all}}\n  node_groups:\n"
    return section(head + f"    - {{label: g, {first}}}\n    - {{label: h, {second}}}\n")


def labelled(label: str) -> str:
    """A file with a node group of this label on line 3."""
    return section(f"  node_groups: [{{label: {label}, node_ranks: 0}}]\n")


ENV = "node_ranks: 0\nenv_configs:\n  - node_ranks: 0\n"
ARMS = "node_ranks: 0\nhardware:\n  type: Arm\n  configs:\n"
FRANKA = ARMS.replace("Arm", "Franka")

# help lines of several rows
SECTION = (
    "add `cluster:` with num_nodes and component_placement, or name the system that the config is for with --dialect"
)
NUMBER = "write a number such as 1"
TEXT = "write text such as 0-7, 0-1:0-3 or all"
LABEL = "write a name, e.g. a800; quote it if it looks like a number"
GROUP = "write the label of a node group, or remove the key"
APART = "select groups without common nodes, or one group that has all of these nodes"
RANKS = "write a range such as 0-7, an int, or a list of ints"
LIST = "write a list: one `- ...` per line, or [a, b]"
VARIABLE = 'write one-key entries: - NAME: "value"'
QUOTED = 'write its text in quotes, e.g. "1"'
BRACKET = "close the bracket, or separate the values by commas"
TOKEN = "invalid YAML: while scanning for the next token found character that cannot start any token"
TABS = "use spaces to indent; YAML forbids tabs"
UNINDENTED = "indent these keys under it: num_nodes and component_placement"
CUT = "quote the placement: inside YAML braces a comma ends the text"
KEYS = "use one of: node_group, placement, parallel, visibility, binding, memory_binding, nics, egl"
ONCE = "configure each piece once, or add a field that distinguishes them, e.g. name"

# (file, "line:column code: message" of its one fault, help)
REFUSED = [
    # the file
    (
        "cluster: [1\n",
        "1:10 invalid-yaml: invalid YAML: while parsing a flow sequence did not find expected ',' or ']'",
        BRACKET,
    ),
    (
        "cluster: [1\nx: y\n",
        "2:2 invalid-yaml: invalid YAML: while parsing a flow sequence did not find expected ',' or ']'",
        BRACKET,
    ),
    (
        placements('a: "0-3'),
        "4:8 invalid-yaml: invalid YAML: while scanning a quoted scalar found unexpected end of stream",
        "close the quote",
    ),
    (
        "cluster:\n\tnum_nodes: 2\n",
        f"2:1 invalid-yaml: {TOKEN}",
        TABS,
    ),
    (
        "cluster:\n  x: y\n\tnum_nodes: 2\n",
        "3:1 invalid-yaml: invalid YAML: while scanning a plain scalar found a tab character that violates indentation",
        TABS,
    ),
    (
        placements("a: @all"),
        f"4:8 invalid-yaml: {TOKEN}",
        "quote the text",
    ),
    (
        placements("a: 0-1 : 0-3"),
        "4:12 invalid-yaml: invalid YAML: mapping values are not allowed in this context",
        'quote text that contains `: `, e.g. "0-1 : 0-3"; align the keys of a mapping; add the `:` that the line above '
        "lacks",
    ),
    (
        "cluster:\n  a: 0\n b: 1\n",
        "3:2 invalid-yaml: invalid YAML: while parsing a block mapping did not find expected key",
        "align the keys of a mapping; a value ends at its closing quote",
    ),
    (
        "cluster:\n  - 1\n  b: 1\n",
        "3:3 invalid-yaml: invalid YAML: while parsing a block collection did not find expected '-' indicator",
        "start each item of a list with `- `, in the same column",
    ),
    (
        placements("a: *b"),
        "4:8 invalid-yaml: invalid YAML: found undefined alias",
        "define the anchor (`&name`) above, or quote the text",
    ),
    (
        placements("a: *"),
        "4:8 invalid-yaml: invalid YAML: while scanning an alias did not find expected alphabetic or numeric character",
        "quote the text: `*` and `&` start the name of an anchor",
    ),
    (
        "cluster: 1\n---\ncluster: 2\n",
        "2:1 invalid-yaml: invalid YAML: expected a single document in the stream but found another document",
        "keep one document per file, without `---` between documents",
    ),
    (
        'cluster: "\\d"\n',
        "1:11 invalid-yaml: invalid YAML: while parsing a quoted scalar found unknown escape character",
        "use single quotes, where a backslash is literal",
    ),
    ("cluster: {num_nodes: 2, x: &x [*x]}\n", "1:28 invalid-yaml: an alias is inside its own anchor", None),
    (
        placements("a: 0\na: 1"),
        "5:5 duplicate-key: duplicate key `a`, first used on line 4",
        "remove one of the two",
    ),
    # the section
    ("clutser: 1\n", "1:1 missing-key: the config has no `cluster` section", "rename `clutser` to `cluster`"),
    (
        "nodes: [{ranks: 0}]\n",
        "1:1 missing-key: the config has no `cluster` section",
        "this is an inventory: pass a config, and this file with --inventory",
    ),
    (
        "components: {a: {seconds: {8: 1}}}\n",
        "1:1 missing-key: the config has no `cluster` section",
        "these look like costs: pass them to `rankplan tune` with --costs",
    ),
    (
        "defaults: [two_nodes]\n",
        "1:1 missing-key: the config has no `cluster` section",
        "pass the config that Hydra has composed: `defaults` are not read",
    ),
    ("trainer: 1\n", "1:1 missing-key: the config has no `cluster` section", SECTION),
    ("cluster:\n", "1:1 invalid-value: `cluster` is null; it must be a mapping", UNINDENTED),
    ("cluster:\nnum_nodes: 2\n", "1:1 invalid-value: `cluster` is null; it must be a mapping", UNINDENTED),
    (
        section("  component_placement:\n  actor: 0-3\n"),
        "3:3 invalid-value: `component_placement` is null; it must be a mapping",
        "indent these keys under it: actor",
    ),
    (
        section("  component_placement:\n  component_placment: {actor: 0-3}\n"),
        "4:3 unknown-key: unknown key `component_placment`, and no component is placed",
        "rename it to `component_placement`",
    ),
    (
        "cluster: [1]\n",
        "1:1 invalid-value: `cluster` is [1]; it must be a mapping",
        "write num_nodes and component_placement in it",
    ),
    (
        "component_placement: {a: 0}\nnum_nodes: 2\n",
        "1:1 missing-key: the config has no `cluster` section",
        "pass the whole config: this mapping belongs under its key `cluster`",
    ),
    (
        "cluster:\n  component_placement: {a: 0}\n",
        "1:1 missing-key: `num_nodes` is missing",
        "add `num_nodes:` with its value",
    ),
    (section("", "two"), "2:14 invalid-value: 'two' is not a whole number", NUMBER),
    (
        section("", "${nodes}"),
        "2:14 invalid-value: '${nodes}' is not a whole number",
        "write the value, or pass the config after Hydra has resolved it",
    ),
    (section("", "true"), "2:14 invalid-value: true is not a whole number", NUMBER),
    (section("", ""), "2:3 invalid-value: `num_nodes` is null; it must be a whole number", NUMBER),
    (section("", "[2]"), "2:3 invalid-value: `num_nodes` is [2]; it must be a whole number", NUMBER),
    (section("", "1_0"), "2:14 invalid-value: '1_0' is not a whole number", NUMBER),
    (section("", 1.5), "2:14 invalid-value: `num_nodes` is 1.5; it must be a whole number", NUMBER),
    (section("", 0), "2:14 invalid-value: `num_nodes` is 0; it must be 1 or more", "use 1 or more"),
    (section("", -1), "2:14 invalid-value: `num_nodes` is -1; it must be 1 or more", "use 1 or more"),
    (
        section("", 99999999),
        "2:14 invalid-value: `num_nodes` is 99999999; it must be 16777216 or less",
        "use 16777216 or less",
    ),
    (
        section("", 3),
        "2:14 too-few-nodes: num_nodes is 3, but the cluster has 2 nodes",
        "set num_nodes to 2 or less, or use a larger cluster",
    ),
    (
        section("  component_placement: [a]\n"),
        "3:3 invalid-value: `component_placement` is ['a']; it must be a mapping",
        "write keys and values",
    ),
    (
        section("  componet_placement: {a: 0}\n"),
        "3:3 unknown-key: unknown key `componet_placement`, and no component is placed",
        "rename it to `component_placement`",
    ),
    (
        section("  node_group: [{label: g, node_ranks: 0}]\n"),
        "3:3 unknown-key: unknown key `node_group`, and no node group is defined",
        "rename it to `node_groups`",
    ),
    *(
        (section(f"  {typo}: x\n"), f"3:3 unknown-key: unknown key `{typo}`", f"did you mean `{key}`?")
        for typo, key in [
            *[("exclud", "exclude"), ("toplogy", "topology"), ("bindng", "binding"), ("memory", "memory_binding")],
            ("memory_bindng", "memory_binding"),
        ]
    ),
    (section("  node_groups: {}\n"), "3:3 invalid-value: `node_groups` is {}; it must be a list", LIST),
    (
        section("  node_groups: [a800]\n"),
        "3:17 invalid-value: `node_groups[0]` is 'a800'; it must be a mapping",
        "write keys and values: label, node_ranks, env_configs, hardware, ignore_hardware",
    ),
    # components
    (
        placements("a,b: 0\nb: 1"),
        "5:5 duplicate-component: component `b` is placed twice",
        "give each component one rule",
    ),
    (placements("a, a: 0"), "4:5 duplicate-component: component `a` is placed twice", "give each component one rule"),
    (
        placements("a,: 0"),
        "4:5 empty-name: `a,` contains an empty component name",
        "write a name between the commas, e.g. actor",
    ),
    (placements("a: {}"), "4:5 missing-key: `placement` is missing", "add `placement:` with its value"),
    (placements("a: {node_group: node}"), "4:5 missing-key: `placement` is missing", "add `placement:` with its value"),
    (
        placements("a:\n  nodegroup: node\n  placement: 0"),
        "5:7 unknown-key: unknown key `nodegroup`",
        "did you mean `node_group`?",
    ),
    (
        placements("a: [0, 1, 3]"),
        "4:5 invalid-value: placement is [0, 1, 3]; it must be text",
        "write the placement as text, not as a list: 0-1,3",
    ),
    (
        placements("a: [0-1:0-3, 2]"),
        "4:5 invalid-value: placement is ['0-1:0-3', 2]; it must be text",
        TEXT,
    ),
    (
        placements("a: [0-1, 4-5:2]"),
        "4:5 invalid-value: placement is ['0-1', '4-5:2']; it must be text",
        "write the placement as text, not as a list: 0-1,4-5:2",
    ),
    (placements("a: 1.5"), "4:8 invalid-value: placement is 1.5; it must be text", TEXT),
    (placements("a: true"), "4:8 invalid-value: placement is true; it must be text", TEXT),
    (placements("a:"), "4:5 invalid-value: placement is null; it must be text", TEXT),
    (placements("a: ''"), "4:5 empty-placement: the placement is empty", "write resource ranks such as 0-7, or all"),
    (
        placements("a: {placement: {node_group: node}}"),
        "4:9 invalid-value: placement is {'node_group': 'node'}; it must be text",
        TEXT,
    ),
    (placements("a: 0-3:0-1,x"), "4:16 syntax: expected resource ranks, found `x`", test_language.GRAMMAR),
    (
        placements("a: {node_group: nod, placement: 0}"),
        "4:21 unknown-node-group: unknown node group `nod`",
        "did you mean `node`?",
    ),
    (
        placements("a: {node_group: 'node,', placement: 0}"),
        "4:21 unknown-node-group: a node group is empty",
        "write a label between the commas; the groups are: cluster, node",
    ),
    (placements("a: {node_group: null, placement: 0}"), "4:21 invalid-value: node_group is empty", GROUP),
    (placements("a: {node_group: '', placement: 0}"), "4:9 invalid-value: node_group is empty", GROUP),
    (placements("a: {node_group: [], placement: 0}"), "4:9 invalid-value: node_group is empty", GROUP),
    (placements("a: {node_group: 4.5, placement: 0}"), "4:9 invalid-value: 4.5 is not a label", LABEL),
    (placements("a: {node_group: [node, null], placement: 0}"), "4:28 invalid-value: null is not a label", LABEL),
    # several groups
    (
        two_groups("node_ranks: 0-1", "node_ranks: 1"),
        "3:29 overlapping-groups: node groups `g` and `h` both count the accelerators of node 1",
        APART,
    ),
    (
        two_groups("node_ranks: 1, ignore_hardware: true", "node_ranks: 0-1"),
        "3:29 overlapping-groups: node groups `g` and `h` both count the nodes of node 1",
        APART,
    ),
    (
        placements("a: {node_group: 'cluster,node', placement: 0}"),
        "4:21 overlapping-groups: node groups `cluster` and `node` both count the nodes of nodes 0-1",
        APART,
    ),
    (
        placements("a: {node_group: [cluster, cluster], placement: 0}"),
        "4:9 overlapping-groups: node group `cluster` is selected twice",
        "select each group once",
    ),
    # node groups
    (
        section("  node_groups: [{node_ranks: 0}]\n"),
        "3:17 missing-key: `label` is missing",
        "add `label:` with its value",
    ),
    (
        section("  node_groups: [{label: g}]\n"),
        "3:17 missing-key: `node_ranks` is missing",
        "add `node_ranks:` with its value",
    ),
    (
        section("  node_groups:\n    - {label: node, node_ranks: 0}\n"),
        "4:15 reserved-label: the label `node` is reserved: it always means all nodes, counted as nodes",
        "choose another label",
    ),
    (
        labelled("cluster"),
        "3:25 reserved-label: the label `cluster` is reserved: it always means all nodes",
        "choose another label",
    ),
    (labelled("null"), "3:25 invalid-value: null is not a label", LABEL),
    (labelled("''"), "3:18 empty-name: a node group has no label", "give it a label, e.g. a800"),
    (labelled("4.5"), "3:25 invalid-value: 4.5 is not a label", LABEL),
    (labelled("[a800]"), "3:18 invalid-value: ['a800'] is not a label", LABEL),
    (
        labelled("'a,b'"),
        "3:25 invalid-value: the label `a,b` contains a comma",
        "remove the comma: commas separate labels",
    ),
    (labelled("' a800'"), "3:25 invalid-value: the label ' a800' starts or ends with a blank", "remove the blank"),
    (
        section("  node_groups:\n    - {label: g, node_ranks: 0}\n    - {label: g, node_ranks: 1}\n"),
        "5:15 duplicate-node-group: two node groups have the label `g`",
        "give each group a label of its own",
    ),
    (
        section("  node_groups:\n    - {label: 4090, node_ranks: 0}\n    - {label: '4090', node_ranks: 1}\n"),
        "5:15 duplicate-node-group: two node groups have the label `4090`",
        "give each group a label of its own",
    ),
    (
        group("node_ranks: 0\nnode_rank: 1"),
        "7:7 unknown-key: unknown key `node_rank`",
        "did you mean `node_ranks`?",
    ),
    (
        group("node_ranks: 0\nignore_hardware: maybe"),
        "7:24 invalid-value: `ignore_hardware` is 'maybe'; it must be true or false",
        "write true or false",
    ),
    (group("node_ranks: 1-0"), "6:19 reversed-range: range 1-0 ends before it starts", "write 0-1"),
    (group("node_ranks: a-b"), "6:19 syntax: expected ranks, found `a`", "write ranks and ranges, e.g. 0-3,7"),
    (
        group("node_ranks: 0:1"),
        "6:20 syntax: expected `,` or end of text, found `:`",
        "write ranks and ranges, e.g. 0-3,7",
    ),
    (group("node_ranks: all,0"), "6:19 syntax: `all` is not allowed here", "write the ranks, e.g. 0-7"),
    (group("node_ranks: ''"), "6:7 invalid-value: node_ranks is empty", "name at least one node, e.g. 0"),
    (group("node_ranks: []"), "6:7 invalid-value: node_ranks is empty", "name at least one node, e.g. 0"),
    (group("node_ranks:"), "6:7 invalid-value: null is not a set of ranks", RANKS),
    (group("node_ranks: true"), "6:19 invalid-value: true is not a set of ranks", RANKS),
    (group("node_ranks: 0.5"), "6:19 invalid-value: 0.5 is not a set of ranks", RANKS),
    (group("node_ranks: {first: 0}"), "6:7 invalid-value: {'first': 0} is not a set of ranks", RANKS),
    (group("node_ranks: -1"), "6:19 invalid-value: -1 is not a set of ranks", "ranks count from 0, up to 4294967294"),
    (
        group("node_ranks: [0, 4294967295]"),
        "6:7 invalid-value: [0, 4294967295] is not a set of ranks",
        "ranks count from 0, up to 4294967294",
    ),
    (
        group("node_ranks: [0, null]"),
        "6:7 invalid-value: null is not a rank",
        "write a list of ints, or a range such as 0-7",
    ),
    (
        group("node_ranks: [0-1, 3]"),
        "6:7 invalid-value: '0-1' is not a rank",
        "write a list of ints, or a range such as 0-7; a list of ranges is one text: 0-1,3",
    ),
    (
        group("node_ranks: 0-2"),
        "6:19 node-out-of-range: node_ranks 0-2 are out of range: the cluster has 2 nodes, ranks 0-1",
        "use ranks up to 1, or set num_nodes to 3",
    ),
    (
        group("node_ranks: [0, 2]"),
        "6:7 node-out-of-range: node_ranks 0,2 are out of range: the cluster has 2 nodes, ranks 0-1",
        "use ranks up to 1, or set num_nodes to 3",
    ),
    # environments
    (
        group("node_ranks: 0\nenv_configs: {node_ranks: 0}"),
        "7:7 invalid-value: `env_configs` is {'node_ranks': 0}; it must be a list",
        LIST,
    ),
    (
        group("node_ranks: 0\nenv_configs: [0]"),
        "7:21 invalid-value: `env_configs[0]` is 0; it must be a mapping",
        "write keys and values: node_ranks, env_vars, python_interpreter_path, path_env",
    ),
    (
        group("node_ranks: 0\nenv_configs: [{env_vars: []}]"),
        "7:21 missing-key: `node_ranks` is missing",
        "add `node_ranks:` with its value",
    ),
    (
        group("node_ranks: 0\nenv_configs: [{node_ranks: []}]"),
        "7:22 invalid-value: node_ranks is empty",
        "use nodes of the group: 0",
    ),
    (
        group("node_ranks: 0\nenv_configs:\n  - node_ranks: 0-1"),
        "8:23 node-out-of-range: env_configs name node 1, not part of node group `g`",
        "use nodes of the group: 0",
    ),
    (
        group("node_ranks: 0-1\nenv_configs:\n  - node_ranks: 0-1\n  - node_ranks: 1"),
        "9:23 overlapping-env: node 1 of node group `g` is in two env_configs",
        "give each node one env_config",
    ),
    (
        group(ENV + "    python_interpreter_path: ''"),
        "9:11 invalid-value: `python_interpreter_path` is empty",
        "write its text, or remove the key",
    ),
    (
        group(ENV + "    python_interpreter_path: 3.11"),
        "9:36 invalid-value: `python_interpreter_path` is 3.11; it must be text",
        "write text; quote it if it looks like something else",
    ),
    (
        group(ENV + "    python_interpreter_path: ~/venv/bin/python"),
        "9:36 invalid-value: `python_interpreter_path` is '~/venv/bin/python'; it must be an absolute path",
        "write the path on the node, e.g. /opt/venv/bin/python3",
    ),
    (placements("a: {placment: 0}"), "4:9 unknown-key: unknown key `placment`", "did you mean `placement`?"),
    (placements("a: {Placement: 0}"), "4:9 unknown-key: unknown key `Placement`", "did you mean `placement`?"),
    (section("  component_placement: {a: 0-1,2-3}\n"), "3:32 invalid-value: placement is null; it must be text", CUT),
    (placements("a: {placement: 0-1,2-3: 0}"), "4:24 unknown-key: unknown key `2-3`", KEYS),
    (placements("a: {placement: 0-1,2-3}"), "4:24 unknown-key: unknown key `2-3`", CUT),
    (group(ENV + "    env_var: 3"), "9:11 unknown-key: unknown key `env_var`", "did you mean `env_vars`?"),
    (
        group(ENV + "    env_vars: A=1"),
        "9:21 invalid-value: env_vars is 'A=1'; it must be a list of variables",
        VARIABLE,
    ),
    (group(ENV + "    env_vars:\n      - A=1"), "10:15 invalid-value: 'A=1' is not a single variable", VARIABLE),
    (group(ENV + "    env_vars:\n      - A"), "10:15 invalid-value: 'A' is not a single variable", VARIABLE),
    (group(ENV + "    env_vars:\n      - 5"), "10:15 invalid-value: 5 is not a single variable", VARIABLE),
    (
        group(ENV + "    env_vars:\n      - {A: 1, B: 2}"),
        "10:15 invalid-value: {'A': 1, 'B': 2} is not a single variable",
        VARIABLE,
    ),
    (
        group(ENV + "    env_vars:\n      - export A: 1"),
        "10:15 invalid-value: 'export A' is not the name of an environment variable",
        "write a name such as GLOO_SOCKET_IFNAME",
    ),
    (group(ENV + "    env_vars:\n      - A:"), "10:15 invalid-value: variable `A` is null; it must be text", QUOTED),
    (
        group(ENV + "    env_vars:\n      - RLINF_PATH_ENV_MERGE_MODE: prepend"),
        "10:42 invalid-value: variable `RLINF_PATH_ENV_MERGE_MODE` is 'prepend'; it must be append or override",
        "write override to replace PATH and other lists of folders",
    ),
    (
        group(ENV + "    path_env: override"),
        "9:21 invalid-value: `path_env` is 'override'; it must be prepend or replace",
        "remove it: PATH and other lists of folders are then prepended",
    ),
    (
        group(ENV + "    env_vars:\n      - A: true"),
        "10:18 invalid-value: variable `A` is true; it must be text",
        QUOTED,
    ),
    (group(ENV + "    env_vars:\n      - A: [1]"), "10:15 invalid-value: variable `A` is [1]; it must be text", QUOTED),
    (
        group(ENV + '    env_vars:\n      - A: "\\0"'),
        "10:18 invalid-value: variable `A` is '\\x00'; "
        "environment variables cannot contain NUL bytes or lone surrogates",
        "write plain text",
    ),
    (
        group(ENV + "    env_vars:\n      - A: 1\n      - A: 2"),
        "11:15 duplicate-env-var: variable `A` is set twice for the same nodes",
        "remove one of the two",
    ),
    (
        group(ENV + "    env_vars:\n      - RANK: 1"),
        "10:15 reserved-env-var: variable `RANK` is set by the plan",
        "remove it: placements decide ranks and devices",
    ),
    (
        group(ENV + "    env_vars:\n      - RLINF_NODE_RANK: 0"),
        "10:15 reserved-env-var: variable `RLINF_NODE_RANK` orders the nodes and is read before any process starts",
        "set it on the node before `ray start`",
    ),
    # hardware
    (
        group("node_ranks: 0\nhardware: Franka"),
        "7:17 invalid-value: `hardware` is 'Franka'; it must be a mapping",
        "write keys and values: type, configs",
    ),
    (
        group("node_ranks: 0\nhardware: {configs: []}"),
        "7:7 missing-key: `type` is missing",
        "add `type:` with its value",
    ),
    (
        group("node_ranks: 0\nhardware: {type: '', configs: []}"),
        "7:18 invalid-value: '' is not a hardware type",
        "write a name, e.g. Franka",
    ),
    (
        group("node_ranks: 0\nhardware: {type: franka, configs: []}"),
        "7:24 invalid-value: unknown hardware type `franka`",
        "did you mean `Franka`?",
    ),
    (
        group("node_ranks: 0\nhardware: {type: 7, configs: []}"),
        "7:24 invalid-value: `type` is 7; it must be text",
        "write text; quote it if it looks like something else",
    ),
    (
        group("node_ranks: 0\nhardware: {type: NV_GPU, configs: []}"),
        "7:24 invalid-value: hardware type `NV_GPU` cannot be configured: rankplan detects accelerators itself",
        "remove `hardware` to place on them, or choose another name",
    ),
    (
        group("node_ranks: 0\nhardware: {type: accelerator, configs: []}"),
        "7:24 invalid-value: hardware type `accelerator` cannot be configured: rankplan detects accelerators itself",
        "remove `hardware` to place on them, or choose another name",
    ),
    (
        group("node_ranks: 0\nhardware: {type: Arm, configs: [], robots: 2}"),
        "7:42 unknown-key: unknown key `robots`",
        "use one of: type, configs",
    ),
    (
        group("node_ranks: 0\nhardware: {type: Arm, configs: {node_rank: 0}}"),
        "7:29 invalid-value: `configs` is {'node_rank': 0}; it must be a list",
        LIST,
    ),
    (
        group(ARMS + "    - 0"),
        "10:13 invalid-value: `configs[0]` is 0; it must be a mapping",
        "write keys and values: node_rank",
    ),
    (group(ARMS + "    - {name: x}"), "10:13 missing-key: `node_rank` is missing", "add `node_rank:` with its value"),
    (
        group(ARMS + "    - {node_ranks: 0}"),
        "10:13 missing-key: `node_rank` is missing",
        "rename `node_ranks` to `node_rank`",
    ),
    (group(ARMS + "    - {node_rank: 0-1}"), "10:25 invalid-value: '0-1' is not a whole number", NUMBER),
    (
        group(ARMS + "    - {node_rank: -1}"),
        "10:25 invalid-value: `node_rank` is -1; it must be 0 or more",
        "use 0 or more",
    ),
    (group(ARMS + "    - {node_rank: true}"), "10:25 invalid-value: true is not a whole number", NUMBER),
    (
        group(ARMS + "    - {node_rank: 0, since: .nan}"),
        "10:13 invalid-value: a hardware config contains values other than text, numbers and lists",
        "write plain values",
    ),
    (
        group(ARMS + "    - node_rank: 1"),
        "10:24 node-out-of-range: Arm hardware is configured on node 1, not part of node group `g` (0)",
        "use a node of the group (0), or add node 1 to its node_ranks",
    ),
    (
        group(ARMS + "    - {node_rank: 0, name: x}\n    - {node_rank: 0, name: x}"),
        "11:13 duplicate-hardware: two configs of node group `g` describe the same piece of hardware",
        ONCE,
    ),
    (
        group(ARMS + "    - {node_rank: 0}\n    - {node_rank: 0}"),
        "11:13 duplicate-hardware: two configs of node group `g` describe the same piece of hardware",
        ONCE,
    ),
    (
        group(FRANKA + "    - {node_rank: 0, robot_pi: 10.0.0.1}"),
        "10:13 missing-key: `robot_ip` is missing",
        "rename `robot_pi` to `robot_ip`",
    ),
    (
        group(FRANKA + "    - {node_rank: 0, robot_ip: [10.0.0.1]}"),
        "10:28 invalid-value: `robot_ip` is ['10.0.0.1']; it must be text",
        "write text; quote it if it looks like something else",
    ),
    (
        section(
            "  node_groups:\n    - {label: g, node_ranks: 0-1, hardware: {type: Arm}}\n"
            "    - {label: h, node_ranks: 0, hardware: {type: Arm, configs: [{node_rank: 0}]}}\n"
        ),
        "5:33 duplicate-hardware: node groups `g` and `h` both configure Arm hardware on node 0",
        "configure all hardware of one type on a node in the same group",
    ),
    (
        group(FRANKA + "    - {node_rank: 0, robot_ip: 10.0.0.1, camera_serials: 322}"),
        "10:64 invalid-value: `camera_serials` is 322; it must be a list",
        LIST,
    ),
    (
        group(FRANKA + "    - {node_rank: 0, robot_ip: 10.0.0.1, disable_validate: maybe}"),
        "10:66 invalid-value: `disable_validate` is 'maybe'; it must be true or false",
        "write true or false",
    ),
    (
        group(FRANKA + "    - {node_rank: 0, robot_ip: 10.0.0.1, controller_node_rank: -1}"),
        "10:70 invalid-value: `controller_node_rank` is -1; it must be 0 or more",
        "use 0 or more",
    ),
    (
        two_groups(
            "node_ranks: 0-1, hardware: {type: Arm, configs: [{node_rank: 0, name: x}, {node_rank: 1, name: x}]}",
            "node_ranks: 0-1, hardware: {type: Arm, configs: [{node_rank: 0, name: y}, {node_rank: 1, name: y}]}",
        ),
        "6:35 duplicate-hardware: node groups `g` and `h` both configure Arm hardware on nodes 0-1",
        "configure all hardware of one type on a node in the same group",
    ),
]


@pytest.mark.parametrize(("text", "found", "help"), REFUSED)
def test_refusal_says_where_and_what_was_found_and_what_to_write(text: str, found: str, help: str | None) -> None:
    with pytest.raises(PlacementError) as refused:
        loaded(text)
    assert [f"{fault.line}:{fault.column} {fault.code}: {fault.message}" for fault in refused.value.diagnostics] == [
        found
    ]
    assert refused.value.help == help
    assert refused.value.render().splitlines()[1].strip().startswith(f"--> conf.yaml:{found.split()[0]}")


@pytest.mark.parametrize(
    "groups", ["node_groups: {label: g, node_ranks: 0}", "node_group: [{label: g, node_ranks: 0}]"]
)
def test_who_selects_a_group_is_not_blamed_where_no_group_could_be_read(groups: str) -> None:
    text = placements("a: {node_group: g, placement: 7-0}\nb: {node_group: nod, placement: 0}\nc: 99") + f"  {groups}\n"
    with pytest.raises(PlacementError) as refused:
        loaded(text)
    assert [(fault.line, fault.code) for fault in refused.value.diagnostics][:2] == [
        (4, "reversed-range"),
        (6, "resource-out-of-range"),
    ]
    assert len(refused.value.diagnostics) == 3


def test_a_number_that_is_read_as_another_text_is_shown_as_it_is_written() -> None:
    with pytest.raises(PlacementError) as refused:
        loaded(placements("a: 0x7F"))
    assert refused.value.render().splitlines()[3:5] == ["4 |     a: 0x7F", "  |        ^^^^"]


def test_nothing_is_assumed_of_a_number_of_nodes_that_cannot_be_read() -> None:
    with pytest.raises(PlacementError) as refused:
        rlinf.assumed_inventory({"cluster": {"num_nodes": "two", "component_placement": {"a": "7-0"}}})
    assert [fault.code for fault in refused.value.diagnostics] == ["invalid-value", "reversed-range"]


def test_all_faults_of_a_file_are_reported_together_and_in_its_order() -> None:
    with pytest.raises(PlacementError) as refused:
        loaded(
            placements("a: 7-3\nb: {node_group: g, placement: x}\nc: 0-1:0-2,9")
            + "  node_groups:\n    - {label: cluster, node_ranks: 0}\n    - {label: h, node_rank: 1}\n"
        )
    found = [(fault.line, fault.code) for fault in refused.value.diagnostics]
    assert found == sorted(found, key=lambda fault: fault[0])
    assert set(found) == {
        *((4, "reversed-range"), (5, "unknown-node-group"), (5, "syntax")),
        *((6, "not-multiple"), (6, "resource-out-of-range")),
        *((8, "reserved-label"), (9, "unknown-key")),
    }


def test_a_fault_in_a_node_group_hides_no_other_of_it() -> None:
    """Its robots are not counted then; its nodes are, where the fault is in an environment only."""
    rest = "node_ranks: 0-1\nenv_configs:\n  - {node_ranks: 0, env_vars: A=1}\n  - {node_ranks: 0-2, env_var: []}\n"
    faulty = group(rest).replace("{a: 0}", "{a: {node_group: g, placement: 0-9}, b: {node_group: h, placement: 7}}")
    robots = "{node_rank: 9}, {node_rank: 0}, {node_rank: 0}"
    faulty += f"    - {{label: h, node_ranks: 0, ignore: 1, hardware: {{type: Arm, configs: [{robots}]}}}}\n"
    with pytest.raises(PlacementError) as refused:
        loaded(faulty)
    assert [(fault.line, fault.code) for fault in refused.value.diagnostics] == [
        (3, "resource-out-of-range"),
        *((8, "invalid-value"), (9, "node-out-of-range"), (9, "overlapping-env"), (9, "unknown-key")),
        *((10, "unknown-key"), (10, "node-out-of-range"), (10, "duplicate-hardware")),
    ]


INVENTORIES = [
    ([], "invalid-value"),
    ([{"ranks": "0,2", "accelerators": 1}], "invalid-inventory"),
    ([{"ranks": "0-1", "accelerators": 1}, {"ranks": 1, "accelerators": 1}], "invalid-inventory"),
    ([{"ranks": 0, "accelerators": 3, "accelerator_ids": ["1"]}], "invalid-inventory"),
    ([{"ranks": 0, "accelerator_ids": ["1", "1"]}], "invalid-inventory"),
    ([{"ranks": 0, "accelerators": -1}], "invalid-value"),
    ([{"ranks": 0, "accelerators": 1, "accelerator_type": "GPU"}], "invalid-value"),
    ([{"ranks": 0, "accelerator": 3}], "unknown-key"),
    ([{"accelerators": 3}], "missing-key"),
    ([{"ranks": "x"}], "syntax"),
    ([{"ranks": 0, "nics": [{"name": "mlx5_0", "rate": float("nan")}]}], "invalid-value"),
    ([{"ranks": 0, "nics": [{"name": "mlx5_0", "rate": -1}]}], "invalid-value"),
]


def test_an_empty_name_is_no_name() -> None:
    inventory = Inventory.from_dict({"nodes": [{"ranks": 0, "hostname": "", "ip": "", "accelerator_model": ""}]})
    assert inventory.to_dict() == {"nodes": [{"ranks": "0"}]} and inventory == Inventory.uniform(1, 0)


@pytest.mark.parametrize(("nodes", "code"), INVENTORIES)
def test_faulty_inventory_is_refused(nodes: list[Any], code: str) -> None:
    with pytest.raises(PlacementError) as refused:
        Inventory.from_dict({"nodes": nodes})
    assert refused.value.code == code
    assert refused.value.help


NODES = "write `nodes:` with a list: - {ranks: 0-7, accelerators: 8}"


@pytest.mark.parametrize(
    ("content", "help"),
    [
        ({"machines": {}}, NODES),
        ({"cluster": {}}, f"this is a config, not an inventory: {NODES}"),
        ({"rankplan": 1, "cluster": {}}, f"this is a saved plan, not an inventory: {NODES}"),
        ({"node": [{"ranks": 0}]}, "rename `node` to `nodes`"),
    ],
)
def test_what_is_no_inventory_is_told_how_one_looks(content: Any, help: str) -> None:
    with pytest.raises(PlacementError, match="the inventory has no `nodes`") as refused:
        Inventory.from_dict(content)
    assert (refused.value.code, refused.value.help) == ("missing-key", help)


def test_an_inventory_without_nodes_is_refused_in_our_words() -> None:
    with pytest.raises(PlacementError, match="`nodes` is empty") as refused:
        Inventory.from_dict({"nodes": []})
    assert refused.value.help == "list at least one"


def test_component_that_is_not_there_is_refused_with_a_guess() -> None:
    placement = loaded(placements("actor: 0"))
    for ask in (placement.get_strategy, placement.get_world_size, placement.get_hardware_ranks):
        with pytest.raises(PlacementError) as refused:
            ask("actr")
        assert (refused.value.code, refused.value.help) == ("unknown-component", "did you mean `actor`?")


def test_the_list_of_codes_is_closed() -> None:
    """Every code is raised by a row of a table, and no row raises another one."""
    raised = {found.split()[1].rstrip(":") for _, found, _ in REFUSED} | {code for _, code in INVENTORIES}
    raised |= {code for _, _, faults in test_language.REFUSED for code, _ in faults}
    raised |= {fault.split(":")[0] for _, faults, _ in test_assignment.WORDS for fault in faults}
    raised |= {code for _, code in test_assignment.REFUSED_BY_HAND}
    raised |= {"unknown-component", "invalid-plan", "plan-mismatch", "share-overflow"}  # above; tests of the plan
    raised |= {"mode-unclear", "auto-order", "auto-dp"}  # tests/rlinf_rejected.yaml
    raised |= {"no-weight-sender", "parallel-conflict", *test_parallel.CODES, *test_tune.CODES}
    raised |= {"excluded-resource", "unknown-level"}  # tests/test_exclusion.py, tests/test_topology.py
    raised |= {"visibility-order", "binding-unmet"}  # tests/test_visibility.py, tests/test_binding.py
    raised |= {"segment-incomplete", "domain-too-small", "no-spare"}  # test_arrange.py, test_replan.py
    assert raised == set(rankplan.error_codes())
    assert len(rankplan.error_codes()) == len(raised)


# ------------------------------------------------------------------------------------- one thing in many writings

FULL = """\
cluster:
  num_nodes: 2
  trainer_setting: left alone
  component_placement:
    actor,critic: 0-3
    rollout: {node_group: 4090, placement: 0}
    env: {node_group: "4090, arms", placement: all}
  node_groups:
    - label: 4090
      node_ranks: 1
    - label: arms
      node_ranks: 0
      hardware: {type: Arm, configs: [{node_rank: 0, name: right}, {node_rank: 0, name: left}]}
      env_configs:
        - {node_ranks: 0, env_vars: [{A: 1}, {B: two}], python_interpreter_path: /opt/python}
"""


def test_a_file_a_dict_and_an_omegaconf_object_give_one_plan() -> None:
    from_file = loaded(FULL).plan()
    assert ComponentPlacement("conf.yaml", TWO_BY_FOUR).plan() == from_file
    assert ComponentPlacement(OmegaConf.load("conf.yaml"), TWO_BY_FOUR).plan() == from_file
    assert ComponentPlacement({"cluster": dict(load_config("conf.yaml")["cluster"])}, TWO_BY_FOUR).plan() == from_file
    assert list(from_file.components) == ["actor", "critic", "rollout", "env"]
    assert [row.devices for row in from_file["env"]] == [*([(1, gpu)] for gpu in range(4)), [(0, 0)], [(0, 1)]]


def test_components_of_one_key_share_one_strategy_object() -> None:
    placement = loaded(FULL)
    assert placement.get_strategy("actor") is placement.get_strategy("critic")
    assert placement.get_strategy("actor") is not placement.get_strategy("rollout")
    assert (placement.get_world_size("env"), placement.get_hardware_ranks("actor")) == (6, [0, 1, 2, 3])


@pytest.mark.parametrize("written", ["0-1", "0,1", "1,0", "[0, 1]", "[1, 0]", "all", "' 0 - 1 '"])
def test_node_ranks_may_be_text_or_a_list_in_any_order(written: str) -> None:
    plan = loaded(group(f"node_ranks: {written}").replace("{a: 0}", "{a: {node_group: g, placement: all}}")).plan()
    assert [row.devices for row in plan["a"]] == [[(node, gpu)] for node in range(2) for gpu in range(4)]


def test_labels_keep_their_case_and_ints_become_text() -> None:
    text = placements("a: {node_group: G, placement: 0}\nb: {node_group: 4090, placement: 0}")
    text += "  node_groups: [{label: g, node_ranks: 0}, {label: G, node_ranks: 1}, {label: 4090, node_ranks: 1}]\n"
    plan = loaded(text).plan()
    assert [plan[name][0].cluster_node_rank for name in "ab"] == [1, 1]
    assert [plan[name][0].node_group_label for name in "ab"] == ["G", "4090"]


def test_environment_is_that_of_the_node_in_the_group() -> None:
    environments = ["{node_ranks: 0, env_vars: [{A: 1}]}", "{node_ranks: 1, env_vars: [{A: 2}]}"]
    known = loaded(group(f"node_ranks: 0-1\nenv_configs: [{', '.join(environments)}]")).plan().inventory
    assert known.environment(0, "g") == ({"A": "1"}, None)
    assert known.environment(1, "g") == ({"A": "2"}, None)
    assert known.environment(1, "cluster") == ({}, None)
    with pytest.raises(PlacementError) as refused:
        known.environment(1, "G")
    assert (refused.value.code, refused.value.help) == ("unknown-node-group", "did you mean `g`?")


def test_robots_are_ordered_by_node_and_then_as_written_and_are_the_registered_model() -> None:
    class Gripper(HardwareConfig):
        name: str

    register_hardware("Gripper of this test", Gripper)
    robots = ["{node_rank: 1, name: c}", "{node_rank: 0, name: b}", "{node_rank: 0, name: a}"]
    text = group(f"node_ranks: 0-1\nhardware: {{type: Gripper of this test, configs: [{', '.join(robots)}]}}")
    plan = loaded(text.replace("{a: 0}", "{a: {node_group: g, placement: 'all:0-2'}}")).plan()
    held = [plan.inventory.hardware(row) for row in plan["a"]]
    assert [[(type(robot), robot.node_rank, robot.name) for robot in robots] for robots in held] == [
        [(Gripper, 0, "b")],
        [(Gripper, 0, "a")],
        [(Gripper, 1, "c")],
    ]


def test_rules_of_a_registered_model_are_those_of_the_config() -> None:
    class Camera(HardwareConfig):
        model_config = ConfigDict(extra="forbid")
        port: int
        kind: Literal["zed", "realsense"] = "zed"

        @field_validator("port")
        @classmethod
        def _free(cls, value: int) -> int:
            if value < 1024:
                raise ValueError("Ports below 1024 are the system's")
            return value

    register_hardware("Camera of this test", Camera)
    cameras = ["{node_rank: 0, port: 80}", "{node_rank: 0, port: 8080, kind: sony}", "{node_rank: 0, port: 1, prot: 2}"]
    configs = "".join(f"    - {camera}\n" for camera in cameras)
    with pytest.raises(PlacementError) as refused:
        loaded(group(ARMS.replace("Arm", "Camera of this test") + configs))
    assert [f"{fault.line}:{fault.column} {fault.message}; {fault.help}" for fault in refused.value.diagnostics] == [
        "10:34 `port` is 80, which is invalid; ports below 1024 are the system's",
        "11:46 `kind` is 'sony', which is invalid; input should be 'zed' or 'realsense'",
        "12:34 `port` is 1, which is invalid; ports below 1024 are the system's",
        "12:37 unknown key `prot`; did you mean `port`?",
    ]
    with pytest.raises(TypeError, match=r"is not a subclass of rankplan.HardwareConfig"):
        register_hardware("Camera of this test", dict)  # type: ignore[arg-type]


def test_a_model_that_is_registered_after_the_config_was_read_has_its_say() -> None:
    plan = loaded(group(ARMS.replace("Arm", "Lamp of this test") + "    - {node_rank: 0, watts: many}")).plan()
    (row,) = NodePlacementStrategy([0]).get_placement(plan.inventory)
    assert plan.inventory.hardware(row) == []
    (row,) = FlexiblePlacementStrategy([[0]], "g").get_placement(plan.inventory)
    assert [lamp.watts for lamp in plan.inventory.hardware(row)] == ["many"]  # type: ignore[attr-defined]

    class Lamp(HardwareConfig):
        watts: int

    register_hardware("Lamp of this test", Lamp)
    with pytest.raises(PlacementError, match="'many'; it must be a whole number"):
        Inventory.from_dict(plan.inventory.to_dict()).with_config(plan.inventory.section).hardware(row)


def test_texts_of_robots_are_saved_as_they_were_written() -> None:
    text = group(FRANKA + "    - {node_rank: 0, robot_ip: 10.10, camera_serials: [0322, 1e3]}")
    plan = loaded(text.replace("{a: 0}", "{a: {node_group: g, placement: 0}}")).plan()
    plan.save("plan.json")
    for known in (plan, Plan.load("plan.json"), pickle.loads(pickle.dumps(plan))):
        (robot,) = known.inventory.hardware(known["a"][0])
        assert (robot.robot_ip, robot.camera_serials) == ("10.10", ("0322", "1e3"))  # type: ignore[attr-defined]


def test_many_robots_groups_and_components_take_a_moment_and_are_not_dumped() -> None:
    many = 2000
    arms = {"type": "Arm", "configs": [{"node_rank": 0, "name": str(i)} for i in range(10 * many)]}
    labels = [f"g{rank}" for rank in range(many)]
    groups = [{"label": label, "node_ranks": rank} for rank, label in enumerate(labels)]
    components = {f"c{i}": 0 for i in range(many)}
    components["env"] = {"node_group": "arms", "placement": "all"}
    components["actor"] = {"node_group": labels, "placement": "all"}
    section = {"num_nodes": many, "component_placement": components, "node_groups": groups}
    section["node_groups"].append({"label": "arms", "node_ranks": 0, "hardware": arms})
    started = time.perf_counter()
    plan = ComponentPlacement({"cluster": section}, Inventory.uniform(num_nodes=many, num_accelerators=8)).plan()
    assert (len(plan["env"]), len(plan["actor"])) == (10 * many, 8 * many)
    assert time.perf_counter() - started < 10
    assert len(repr(plan)) < 300 and len(repr(plan["actor"])) < 300


def test_each_fault_of_many_finds_its_place_at_once() -> None:
    texts = {f"c{index}": "99" for index in range(30_000)}
    file = load_config(_written(placements("\n".join(f"{name}: {text}" for name, text in texts.items()))))
    started = time.perf_counter()
    for config in (file, {"cluster": {"num_nodes": 1, "component_placement": texts}}):
        with pytest.raises(PlacementError) as refused:
            ComponentPlacement(config, TWO_BY_FOUR)
        assert [str(fault.path).rpartition(".")[2] for fault in refused.value.diagnostics] == list(texts)
    assert time.perf_counter() - started < 10


def test_plain_numbers_of_a_file_are_read_as_yaml_1_2_reads_them() -> None:
    config = load_config(_written("a: 1:0\nb: 12:5\nc: 0-7\nd: 010\ne: yes\nf: 0o10\ng: 1_0\nh: '3'\n"))
    assert dict(config) == {"a": "1:0", "b": "12:5", "c": "0-7", "d": 10, "e": "yes", "f": 8, "g": "1_0", "h": "3"}


def _written(text: str) -> Path:
    path = Path("written.yaml")
    path.write_text(text)
    return path
