"""What `accelerate launch` starts: the answers of its own functions, with a stub of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from rankplan.dialects.launching import accelerate
from rankplan.errors import Faults, Where
from rankplan.read.text.reader import Reader
from rankplan.read.text.started import CommandWord
from support.goldens import lines

LINES = lines("accelerate_launches")
HERE = Where("command")


def ours(line: dict[str, Any]) -> dict[str, Any]:
    """Return the processes of each node, the nodes and the mask; or the codes of the faults."""
    faults = Faults()
    flags = accelerate.launch_flags([CommandWord(word, HERE, word) for word in line["flags"]])
    file = None if line["file"] is None else Reader(line["file"]).reporting(faults)
    processes = accelerate.processes(flags, file, faults, HERE)
    if faults:
        return {"refused": [fault.code for fault in faults]}
    mask = None if processes.devices is None else ",".join(map(str, processes.devices))
    return {"each": processes.on_node(line["devices"]), "nodes": processes.nodes, "mask": mask}


def has_one_device_and_no_type(line: dict[str, Any]) -> bool:
    """Return whether accelerate would start several processes, but its machine has a single device.

    It starts one then. A plan knows the nodes later, and rejects more processes than devices there.
    """
    typed = any(word in line["flags"] for word in ("--multi_gpu", "--use_fsdp", "--use_deepspeed"))
    return line["devices"] == 1 and line["file"] is None and not typed and line["result"].get("kind") == "one"


@pytest.mark.parametrize("line", LINES, ids=[str(line["id"]) for line in LINES])
def test_accelerate_answers_the_same(line: dict[str, Any]) -> None:
    result, found = line["result"], ours(line)
    if has_one_device_and_no_type(line):
        assert found.get("each") != 0
    elif "refused" in result or result.get("each") == 0:  # none starts: accelerate says nothing
        assert "refused" in found
    elif result["kind"] == "one":
        assert found == {"each": 1, "nodes": 1, "mask": result["mask"]}
    else:
        assert found == {"each": result["each"], "nodes": result["nodes"], "mask": result["mask"]}


def test_the_recording_has_every_kind() -> None:
    kinds = {line["result"].get("kind", "refused") for line in LINES}
    assert kinds == {"multi", "fsdp", "deepspeed", "hostfile", "one", "refused"}
