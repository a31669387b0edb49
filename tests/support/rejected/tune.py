"""Costs that are refused."""

from __future__ import annotations

ONE = "components: {a: {seconds: {8: 3}}}\n"
REFUSED = [
    ("components: {a: {memory: 3}}", "missing-times", "component `a` has no times", "1:14"),
    ("components: {a: {seconds: {}}}", "missing-times", "component `a` has no times", "1:"),
    ("batches: 4", "missing-times", "the costs have no components", ""),
    (f"{ONE}batches: 0", "invalid-value", "`batches` is 0", "2:10"),
    (f"{ONE}mode: late", "invalid-value", "`mode` is 'late'; it must be sync or async", "2:7"),
    (f"{ONE}sharing: [all]", "invalid-value", "it must be some of disaggregated, collocated, hybrid", "2:1"),
    (f"{ONE}batch: 4", "unknown-key", "unknown key `batch`", "2:1"),
    ("components: {a: {secs: {8: 3}}}", "unknown-key", "unknown key `secs`", "1:18"),
    ("components: {a: {seconds: 3}}", "invalid-value", "`seconds` is 3; it must map numbers to seconds", "1:27"),
    ("components: {a: {seconds: {x: 3}}}", "invalid-value", "'x' is not a number of accelerators", "1:"),
    ("components: {a: {seconds: {8: -3}}}", "invalid-value", "`8` is -3; it must be a number above 0", "1:31"),
    ("components: {a: {seconds: {8: .inf}}}", "invalid-value", "it must be a number above 0", "1:31"),
    ("components: {a: {seconds: {8: 3}, dp: [0]}}", "invalid-value", "0 is not a whole number of 1 or more", "1:40"),
    ("components: {a: {seconds: {8: 3}, dp: 4}}", "invalid-value", "it must be a list of whole numbers", "1:39"),
    ("components: {a: {seconds: {8: 3}, sizes: few}}", "invalid-value", "`sizes` is 'few'", "1:42"),
    ("components: {a: {seconds: {8: 3}, parallel: {tp: 0}}}", "invalid-value", "", "1:50"),
    ("components: {a: {seconds: {8: 3}, parallel: t2x}}", "invalid-value", "", "1:47"),
    ("components: {a: {seconds: {8: 3}, memory: much}}", "invalid-value", "`memory` is 'much'", "1:43"),
    ("components: {a: {seconds: {6: 3}, parallel: {tp: 4}}}", "size-does-not-fit", "was measured on 6 acc", "1:31"),
    ("components: {a: {seconds_by_environments: {8: 3}}}", "missing-key", "needs the number of environments", "1:"),
    ("components: {a: {with: b}}", "missing-times", "`a` runs with `b`, which has no times", "1:24"),
    (f"{ONE}after: {{a: [b]}}", "unknown-component", "unknown component `b`", "2:"),
    (f"{ONE}after: {{a: 3}}", "invalid-value", "it must be the components before `a`", "2:12"),
    (f"{ONE}after: {{a: [a]}}", "precedence-cycle", "the components wait for each other: `a` after `a`", "2:"),
    (f"{ONE}sync: [3]", "invalid-value", "`sync` is [3]; it must be a list of mappings", "2:1"),
    (f"{ONE}sync: {{from: a, to: b, bytes: 1}}", "missing-key", "`sync` needs the bandwidth of the levels", "2:"),
    (f"{ONE}bandwidth: {{node: 1}}\nsync: {{from: [a], to: a, bytes: 1}}", "unknown-component", "`['a']`", "3:"),
    (f"{ONE}batches: 1{'0' * 30}", "invalid-value", "it must be 16777216 or less", "2:10"),
    (f"components: {{a: {{seconds: {{8: 1{'0' * 400}}}}}}}", "invalid-value", "it must be a number above 0", "1:"),
    ("components: {'a,b': {seconds: {8: 3}}}", "invalid-value", "'a,b' is not the name of one component", "1:"),
    (f"{ONE}bandwidth: {{node: 0}}", "invalid-value", "`node` is 0; it must be a number above 0", "2:19"),
    (f"{ONE}lend: {{speed: 0}}", "invalid-value", "`speed` is 0; it must be a number above 0", "2:15"),
    (f"{ONE}lend: {{switch: -1}}", "invalid-value", "`switch` is -1; it must be a number of 0 or more", "2:16"),
    (f"{ONE}lend: {{ahead: all}}", "invalid-value", "`ahead` is 'all'; it must be a number of 0 or more", "2:15"),
    (f"{ONE}lend: {{form: a}}", "unknown-key", "unknown key `form`", "2:8"),
    (f"{ONE}lend: 3", "invalid-value", "`lend` is 3", "2:7"),
    (
        "components: {" + ", ".join(f"c{i}: {{seconds: {{8: 3}}}}" for i in range(9)) + "}",
        "invalid-value",
        "most 8",
        "1:",
    ),
]

CODES = {code for _, code, _, _ in REFUSED} | {"size-does-not-fit", "no-schedule", "times-grow", "colocated-times"}
