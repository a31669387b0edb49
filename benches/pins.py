"""The cost of ``rankplan pin`` and ``rankplan live``: Pythons with the hook, requests, and looks at a large cluster.

``python benches/pins.py`` prints one table. Requests are claimed in a store in this process; with ``--ray``, also in
that of a head that is started for it. All but the latter are processor times.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from rankplan import Cluster, Inventory, Plan, Request, plan
from rankplan.runtime.live.compare import compare
from rankplan.runtime.usage.look import look
from rankplan_hook.claims import Claims, Store
from rankplan_hook.names import site
from rankplan_hook.pins import Asked
from rankplan_hook.wrap import _Store
from support.claims import Memory, pins_of
from support.live_tables import Cluster as Tables

STARTS = 101
REQUESTS = 1024
NODES = 1250
NAME = "global_poolverl_group_8_8_8_8"


def started(path: list[str], folder: str) -> float:
    """Return the processor time of an empty Python with these folders on its path, in seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode")), "RANKPLAN_PINS": "0"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = {**environment, "PYTHONPATH": os.pathsep.join(path)}
    subprocess.run([sys.executable, "-c", "pass"], env=variables, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts() -> tuple[float, float]:
    """Return the median time of an empty Python without the hook, and of what the hook adds; measured by turns."""
    with TemporaryDirectory() as folder:
        pairs = [(started([folder], folder), started([site(), folder], folder)) for _ in range(STARTS)]
    without = statistics.median(before for before, _ in pairs[1:])  # the first fills caches
    return without, statistics.median(after for _, after in pairs[1:]) - without


def requests(name: str) -> tuple[list[Request], list[Asked]]:
    """Return the requests of a plan with a group on each of 1,024 nodes, and what the program asks for."""
    names = [name and f"{name}:{number}" for number in range(REQUESTS)]
    planned = [
        Request("actor", re.escape(name) if name else None, (1,) * 8, (number,) * 8, "STRICT_PACK")
        for number, name in enumerate(names)
    ]
    return planned, [Asked((1.0,) * 8, name, "STRICT_PACK") for name in names]


def claimed(name: str, store: Store | None = None) -> float:
    """Return the seconds in which all requests are claimed: without a store, the processor time in this process."""
    planned, wanted = requests(name)
    pins = pins_of(planned)
    claims = Claims(pins, store or Memory(pins.ids), f"bench-{name}", "01")
    clock = time.process_time if store is None else time.perf_counter
    begin = clock()
    for number, one in enumerate(wanted):
        claims.made(claims.take(one), "group", f"{number:036x}")
    return clock() - begin


def looked() -> float:
    """Return the processor time of a look at 10,000 actors, and of their comparison with a plan."""
    addresses = [f"10.{node // 200}.{node % 200}.1" for node in range(NODES)]
    found = Tables([(address, 8) for address in addresses])
    for number, address in enumerate(addresses):
        group = found.group([address] * 8, [1] * 8, name=f"{NAME}:{number}", strategy="STRICT_PACK")
        for bundle in range(8):
            found.actor(address, [bundle], group=group, bundle=bundle)
    planned = large(addresses)
    tables = found.tables()
    begin = time.process_time()
    live = compare(look(tables, "", planned.inventory), planned, "the plan")
    taken = time.process_time() - begin
    if live.compared is None or live.compared.up != NODES * 8:
        raise SystemExit("the ranks were not compared")
    return taken


def large(addresses: list[str]) -> Plan:
    """Return a plan of 10,000 ranks on these nodes, with a group on each."""
    nodes = [{"ranks": rank, "ip": address, "accelerators": 8} for rank, address in enumerate(addresses)]
    config = {"cluster": {"num_nodes": NODES, "component_placement": {"actor": "all"}}}
    made = plan(config, Inventory.from_dict({"nodes": nodes}))
    wanted = [Request("actor", re.escape(f"{NAME}:{node}"), (1,) * 8, (node,) * 8) for node in range(NODES)]
    return Plan(made.inventory, made.values(), made.mode, "verl", wanted)


class Alive(_Store):
    """The store of the connected head, and nodes that are always there."""

    def nodes(self) -> dict[str, tuple[bool, str]]:
        """Read the table of nodes, as the hook does; return the made-up nodes of the requests."""
        super().nodes()
        return {f"id{node}": (True, "") for node in range(REQUESTS)}


def main() -> None:
    """Print the table."""
    without, added = starts()
    row("an empty Python", without)
    row("the hook in it", added)
    kinds = {"with names": NAME, "without names": ""}
    for kind, name in kinds.items():
        row(f"{REQUESTS:,} requests {kind}", claimed(name))
    if "--ray" in sys.argv[1:]:
        with Cluster.simulate("1x1"):
            for kind, name in kinds.items():
                row(f"{REQUESTS:,} requests {kind}, in a head", claimed(name, Alive()))
    row(f"a look at {NODES * 8:,} actors, compared", looked())


def row(what: str, seconds: float) -> None:
    """Print a row of the table."""
    print(f"{what:<44}{seconds * 1e3:10.1f} ms")


if __name__ == "__main__":
    main()
