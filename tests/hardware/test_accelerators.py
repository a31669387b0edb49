"""Accelerators of a registered type: known everywhere, as if they were a row of the table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REGISTER = """
from rankplan import ComponentPlacement, Inventory, PlacementError, register_accelerator
from rankplan.accelerators import TYPES, VENDORS, registered
from rankplan.environment import planned_environment, reserved_variables
from rankplan.rlinf import with_section

def register(accelerator_type="MY_NPU", **more):
    values = dict(env_var="MY_VISIBLE", resource="MY_NPU", noset_env_var="MY_OFF", prefix="npu:", conflicts=["MY_MASK"])
    register_accelerator(accelerator_type, **values | more)

"""


def run(program: str) -> str:
    """Run a program in a process of its own: a registration cannot be taken back."""
    done = subprocess.run([sys.executable, "-c", REGISTER + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_registered_type_plans_like_a_row_of_the_table() -> None:
    program = """
register()
inventory = Inventory.from_dict({"nodes": [{"ranks": 0, "accelerators": 4, "accelerator_type": "MY_NPU"}]})
config = {"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-3:0-1"}}}
plan = ComponentPlacement(config, inventory).plan()
print(plan["actor"][1].accelerator_type, plan["actor"][1].visible_accelerators)
environment = planned_environment(plan["actor"][1])
print({name: environment[name] for name in ("MY_VISIBLE", "MY_OFF")}, "CUDA_VISIBLE_DEVICES" in environment)
print(sorted({"MY_VISIBLE", "MY_OFF", "MY_MASK", "RANK", "MINE"} & reserved_variables()))
group = {"label": "a", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": [{"MY_MASK": "1"}]}]}
try:
    with_section(inventory, {"num_nodes": 1, "node_groups": [group]})
except PlacementError as error:
    print(error.code)
"""
    assert run(program).splitlines() == [
        "MY_NPU ['2', '3']",
        "{'MY_VISIBLE': 'npu:2,npu:3', 'MY_OFF': '1'} False",
        "['MY_MASK', 'MY_OFF', 'MY_VISIBLE', 'RANK']",
        "reserved-env-var",
    ]


def test_the_same_again_does_nothing_and_other_values_are_an_error() -> None:
    program = """
register(); register()
print(len(registered()), TYPES[-2:], VENDORS[-1].accelerator_type)
for arguments in ({"env_var": "OTHER"}, {"accelerator_type": "NV_GPU"}, {"accelerator_type": "NO_ACCEL"},
                  {"accelerator_type": "a b"}, {"env_var": ""}, {"resource": None}, {"conflicts": iter(["A", "B=1"])}):
    try:
        register(**arguments)
    except ValueError as error:
        print(error)
print(len(registered()))
"""
    assert run(program).splitlines() == [
        "1 ['MY_NPU', 'NO_ACCEL'] MY_NPU",
        "accelerator type 'MY_NPU' is already known, with other values",
        "accelerator type 'NV_GPU' is already known, with other values",
        "accelerator type 'NO_ACCEL' is already known, with other values",
        "'a b' is not a name: it must be text without blanks, commas and equals signs",
        "'' is not a name: it must be text without blanks, commas and equals signs",
        "None is not a name: it must be text without blanks, commas and equals signs",
        "'B=1' is not a name: it must be text without blanks, commas and equals signs",
        "1",
    ]


def test_an_unknown_type_is_an_error_that_names_the_way_to_register_it(tmp_path: Path) -> None:
    program = """
try:
    Inventory.uniform(1, 2, "WAFER")
except PlacementError as error:
    print(error.message, "|", error.help)
try:
    Inventory.uniform(1, 2, "NVGPU")
except PlacementError as error:
    print(error.help)
"""
    first, second = run(program).splitlines()
    assert first.startswith("unknown accelerator_type `WAFER` | ")
    assert first.endswith("; a type of your own: rankplan.register_accelerator")
    assert second == "did you mean `NV_GPU`?"
