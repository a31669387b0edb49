"""Strategies and components that cannot be placed on two nodes of four accelerators."""

from __future__ import annotations

from rankplan import FlexiblePlacementStrategy, Inventory, NodePlacementStrategy, PackedPlacementStrategy

TWO_BY_FOUR = Inventory.uniform(num_nodes=2, num_accelerators=4)

# (what makes and asks a strategy, code)
REFUSED_BY_HAND = [
    (lambda: FlexiblePlacementStrategy([]), "empty-placement"),
    (lambda: FlexiblePlacementStrategy([[0], []]), "empty-placement"),
    (lambda: FlexiblePlacementStrategy([[0, 0]]), "duplicate-resource"),
    (lambda: FlexiblePlacementStrategy([[-1]]), "invalid-value"),
    (lambda: FlexiblePlacementStrategy([["0"]]), "invalid-value"),
    (lambda: FlexiblePlacementStrategy([[2**40]]), "invalid-value"),
    (lambda: FlexiblePlacementStrategy([[8]]).get_placement(TWO_BY_FOUR), "resource-out-of-range"),
    (lambda: FlexiblePlacementStrategy([[3, 4]]).get_placement(TWO_BY_FOUR), "spans-nodes"),
    (lambda: FlexiblePlacementStrategy([[0]], "node").get_placement(TWO_BY_FOUR), "no-resources"),
    (lambda: FlexiblePlacementStrategy([[0]], "nope").get_placement(TWO_BY_FOUR), "unknown-node-group"),
    (lambda: NodePlacementStrategy([]), "empty-placement"),
    (lambda: NodePlacementStrategy([-1]), "invalid-value"),
    (lambda: NodePlacementStrategy([2]).get_placement(TWO_BY_FOUR), "resource-out-of-range"),
    (lambda: PackedPlacementStrategy(-1, 2), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, 0), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, 1, 0), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, -1), "invalid-value"),
    (lambda: PackedPlacementStrategy(0, 3, 1, 1.0), "invalid-value"),  # type: ignore[arg-type]
    (lambda: PackedPlacementStrategy(3, 2), "reversed-range"),
    (lambda: PackedPlacementStrategy(0, 2, 2), "not-multiple"),
    (lambda: PackedPlacementStrategy(0, 10**9), "too-many-processes"),
    (lambda: PackedPlacementStrategy(0, 8).get_placement(TWO_BY_FOUR), "resource-out-of-range"),
    (lambda: PackedPlacementStrategy(3, 4, 2).get_placement(TWO_BY_FOUR), "spans-nodes"),
    (lambda: PackedPlacementStrategy(0, 0, node_group="node").get_placement(TWO_BY_FOUR), "no-resources"),
]

# (component entry over two nodes of four accelerators, code and message of every fault, help of the last)
WORDS = [
    (
        "0-7:0",
        ["spans-nodes: process 0 would need 8 accelerators on nodes 0 and 1; a process runs on one node"],
        "use more processes: no node has more than 4 accelerators",
    ),
    (
        "2-5:0",
        ["spans-nodes: process 0 would need 4 accelerators on nodes 0 and 1; a process runs on one node"],
        "choose ranks so that each block of 4 is on one node, or give each process fewer accelerators",
    ),
    (
        {"node_group": "node", "placement": "0-1:0"},
        ["spans-nodes: process 0 would run on 2 nodes (0 to 1); a process runs on one node"],
        "use at least as many processes as nodes, e.g. 0-1:0-1",
    ),
    (
        {"node_group": "head,arm", "placement": "3-4:0"},
        ["mixed-hardware: process 0 would need two hardware types: NV_GPU and Arm"],
        "give each hardware type its own segment or component",
    ),
    (
        {"node_group": "cluster,arm", "placement": "7-8:0"},
        [
            "spans-nodes: process 0 would need 2 resources on nodes 1 and 0; a process runs on one node",
            "mixed-hardware: process 0 would need two hardware types: NV_GPU and Arm",
        ],
        "give each hardware type its own segment or component",
    ),
    (
        8,
        ["resource-out-of-range: resource rank 8 is out of range: node group `cluster` has 8 accelerators, ranks 0-7"],
        "use ranks up to 7",
    ),
    (
        60,
        ["resource-out-of-range: resource rank 60 is out of range: node group `cluster` has 8 accelerators, ranks 0-7"],
        "use ranks up to 7; 60 may be YAML 1.1's reading of 1:0; quote it",
    ),
    (
        {"node_group": "node", "placement": "0-5"},
        ["resource-out-of-range: resource ranks 0-5 are out of range: node group `node` has 2 nodes, ranks 0-1"],
        "write 0-1, or add nodes",
    ),
    (
        {"node_group": "none", "placement": "all"},
        ["no-resources: node group `none` has no Arm units to place processes on"],
        "select another node group, or place by node with `node_group: node`",
    ),
    (
        {"node_group": "head, cluster", "placement": "all"},
        ["overlapping-groups: node groups `head` and `cluster` both count the accelerators of node 0"],
        "select groups without common nodes, or one group that has all of these nodes",
    ),
    (
        {"node_group": "heads", "placement": "all"},
        ["unknown-node-group: unknown node group `heads`"],
        "did you mean `head`?",
    ),
]
