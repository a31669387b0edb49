"""Parallel sizes that do not fit, and those with a warning."""

from __future__ import annotations

from rankplan.parallel import Parallel

REFUSED = [
    # placement, parallel, place in the file, code: message, help
    (
        "all",
        "{tp: 3}",
        "6:7",
        "parallel-not-divisible: 16 processes are not a multiple of tp 3",
        "use 15 or 18 processes, or tp 2 or 4",
    ),
    (
        "0-11",
        "{tp: 4, pp: 2}",
        "6:7",
        "parallel-not-divisible: 12 processes are not a multiple of tp 4 x pp 2 = 8",
        "use 8 or 16 processes, or tp 3 or 6, or pp 1 or 3",
    ),
    (
        "all",
        "{tp: 2, ep: 12, etp: 2}",
        "6:7",
        "parallel-not-divisible: 16 processes are not a multiple of etp 2 x ep 12 = 24",
        "use 24 processes, or ep 8",
    ),
    (
        "all",
        "{tp: 4, fsdp: 3}",
        "6:7",
        "parallel-not-divisible: 16 processes are not a multiple of tp 4 x fsdp 3 = 12",
        "use 12 or 24 processes, or fsdp 2 or 4",
    ),
    (
        "all",
        "d8t4",
        "6:17",
        "parallel-not-divisible: dp 8 x tp 4 needs 32 processes, but the component has 16",
        "use dp 4, or 32 processes",
    ),
    (
        "all",
        "d2t4",
        "6:17",
        "parallel-idle: dp 2 x tp 4 uses 8 of 16 processes; 8 are idle",
        "use dp 4, or 8 processes",
    ),
    (
        "all:0-3",
        "{tp: 3}",
        "6:7",
        "parallel-idle: a process of 4 devices holds 1 group of tp 3; 1 is idle",
        "use tp 2 or 4, or 3 or 6 devices per process",
    ),
    (
        "0-11:0-2",
        "{tp: 6}",
        "6:7",
        "parallel-idle: a group of tp 6 does not fill processes of 4 devices; 2 are idle",
        "use tp 4 or 8, or 3 or 6 devices per process",
    ),
    (
        "all",
        "{tp: 2, ep: 4, pp: 2, order: tp-cp-ep-pp-dp}",
        "6:7",
        "invalid-value: the order tp-cp-ep-pp-dp gives slots one pipeline stage for attention (tp 2 x pp 2) and "
        "another for experts (ep 4 x pp 2)",
        "use an order that ends in pp",
    ),
    ("all", "{tp: 0}", "6:22", "invalid-value: `tp` is 0; it must be 1 or more", "use 1 or more"),
    ("all", "{tp: -4}", "6:22", "invalid-value: `tp` is -4; it must be 1 or more", "use 1 or more"),
    ("all", "{tp: four}", "6:22", "invalid-value: 'four' is not a whole number", "write a number such as 1"),
    (
        "all",
        "{tp: '${tp}'}",
        "6:22",
        "invalid-value: '${tp}' is not a whole number",
        "write the value, or pass the config after Hydra has resolved it",
    ),
    ("all", "{tq: 4}", "6:18", "unknown-key: unknown key `tq`", "use one of: tp, cp, ep, etp, pp, dp, fsdp, order"),
    ("all", "{etpp: 4}", "6:18", "unknown-key: unknown key `etpp`", "did you mean `etp`?"),
    (
        "all",
        "{order: tp-cp-dp-pp}",
        "6:25",
        "invalid-value: `order` is 'tp-cp-dp-pp'; it must name tp, cp, ep, dp and pp once each, fastest first",
        "add ep",
    ),
    (
        "all",
        "{order: tp-cp-ep-dp-dp}",
        "6:25",
        "invalid-value: `order` is 'tp-cp-ep-dp-dp'; it must name tp, cp, ep, dp and pp once each, fastest first",
        "add pp",
    ),
    (
        "all",
        "4",
        "6:17",
        "invalid-value: `parallel` is 4; it must be a mapping of sizes",
        "write {tp: 4, pp: 2}, or text such as d4t2p1",
    ),
    (
        "all",
        "",
        "6:7",
        "invalid-value: `parallel` is null; it must be a mapping of sizes",
        "write {tp: 4, pp: 2}, or text such as d4t2p1",
    ),
    (
        "all",
        "'${sizes}'",
        "6:17",
        "invalid-value: `parallel` is '${sizes}'; it must be a mapping of sizes",
        "write the value, or pass the config after Hydra has resolved it",
    ),
    (
        "all",
        "d4x2",
        "6:19",
        "invalid-value: unknown size `x`",
        "write sizes such as d4t2p1: d (data), t (tensor), p (pipeline), c (context), e (expert)",
    ),
    ("all", "d4tp2", "6:19", "invalid-value: unknown size `tp`", "write t2"),
    (
        "all",
        "'4d'",
        "6:18",
        "invalid-value: '4' is not a letter and a size",
        "write sizes such as d4t2p1: d (data), t (tensor), p (pipeline), c (context), e (expert)",
    ),
    ("all", "d4t", "6:19", "invalid-value: `t` has no size", "write t1, or remove it"),
    (
        "all",
        "d4t02",
        "6:20",
        "invalid-value: `t` is 02; it must be 1 to 16777216, without a leading zero",
        "use 1 or more",
    ),
    ("all", "t2d4t4", "6:21", "invalid-value: `t` is given twice", "remove one of the two"),
    (
        "all",
        "d-4",
        "6:17",
        "invalid-value: `d` has no size",
        "write d1, or remove it",
    ),
    (
        "all",
        "''",
        "6:7",
        "invalid-value: the text has no size",
        "write sizes such as d4t2p1: d (data), t (tensor), p (pipeline), c (context), e (expert)",
    ),
]

WARNED = [
    # placement, sizes, nodes, warnings
    (
        "4-11",
        {"tp": 8},
        "2x8",
        "group-spans: actor: tensor group 0 (ranks 0-7) spans nodes 0-1",
        "place each 8 consecutive processes on one node",
    ),
    (
        "2-13",
        {"tp": 4},
        "2x8",
        "group-spans: actor: tensor group 1 (ranks 4-7) spans nodes 0-1",
        "place each 4 consecutive processes on one node",
    ),
    (
        "all",
        {"tp": 8, "cp": 2},
        "4x8",
        "group-spans: actor: 16 of 16 context groups span nodes; the first is group 0 (ranks 0,8) on nodes 0-1",
        "cp 2 needs 16 consecutive processes on one node, and nodes have at most 8: use cp 1",
    ),
    (
        "all:0-3",
        {"tp": 16, "order": Parallel.ENGINE_ORDER},
        "4x8",
        "group-spans: actor: 2 of 2 tensor groups span nodes; the first is group 0 (devices 0-15) on nodes 0-1",
        "use tp 8 or less: nodes have at most 8 devices",
    ),
    (
        "4-11",
        {"tp": 4},
        "2x8",
        "rail-mismatch: actor: 4 of 4 data groups use different local indices on equal nodes; group 0 uses local "
        "indices 4 on node 0 and 0 on node 1",
        "start the component at the first accelerator of a node, and use sizes that divide a node",
    ),
]

CODES = {message.split(":")[0] for *_, message, _ in [*REFUSED, *WARNED]} - {"invalid-value", "unknown-key"}
