"""Configs and inventories that break one rule."""

from __future__ import annotations

from support.rejected.language import GRAMMAR


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
KEYS = (
    "use one of: node_group, placement, parallel, visibility, binding, memory_binding, nics, egl, memory, "
    "cpus_per_process and 1 more"
)
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
        "pass the config that Hydra has composed: `two_nodes` of its `defaults` cannot be found",
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
    (placements("a: 0-3:0-1,x"), "4:16 syntax: expected resource ranks, found `x`", GRAMMAR),
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
