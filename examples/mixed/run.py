"""Run the job of conf.yaml on a simulated copy of its cluster; every rank reports its node, interpreter and devices.

The cluster is real Ray with one raylet per node of nodes.yaml; accelerators and robots need not exist. The interpreter
must exist: a new virtual environment replaces the one that conf.yaml names for the a800 nodes.
"""

import os
import site
import sys
import tempfile
import venv
from pathlib import Path

from rankplan import Cluster, ComponentPlacement, Inventory, Worker, load_config

HERE = Path(__file__).parent


class Reporter(Worker):
    def run(self):
        robots = [robot.robot_ip for robot in self.hardware]
        names = "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "ROBOT_ROOM"
        settings = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
        where = f"{self.component} {self.rank} of {self.world_size} on node {self.placement.cluster_node_rank}"
        return " ".join([f"{where}: {sys.executable}", *settings, *robots])


def other_interpreter(folder):
    """Create an interpreter that finds the packages of this one."""
    venv.create(folder, symlinks=True)
    (packages,) = Path(folder).glob("lib/python*/site-packages")
    lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
    (packages / "borrowed.pth").write_text("".join(lines))
    return Path(folder, "bin", "python")


def main():
    config = load_config(HERE / "conf.yaml")
    a800 = config["cluster"]["node_groups"][0]["env_configs"][0]
    with tempfile.TemporaryDirectory(prefix="a800-") as folder:
        a800["python_interpreter_path"] = str(other_interpreter(folder))
        with Cluster.simulate(Inventory.load(HERE / "nodes.yaml"), config["cluster"]) as cluster:
            placement = ComponentPlacement(config, cluster)
            for component in placement.components:
                strategy = placement.get_strategy(component)
                group = Reporter.create_group().launch(cluster, placement_strategy=strategy, name=component)
                print("\n".join(group.run().wait()))


if __name__ == "__main__":
    main()
