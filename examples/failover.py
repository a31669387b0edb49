"""An engine fleet that survives the loss of a node: four engines on two nodes with four accelerators each, and a spare.

    python examples/failover.py

The nodes are simulated on this machine; on a real cluster, `Cluster()` takes the place of `Cluster.simulate`.
"""

import os

import rankplan
from rankplan import Cluster, Worker

CONFIG = {"cluster": {"num_nodes": 2, "component_placement": {"rollout": "0-7:0-3"}}}


class Engine(Worker):
    def generate(self, prompt):
        return f"engine {self.rank} on accelerators {os.environ['CUDA_VISIBLE_DEVICES']} answers {prompt}"

    def process(self):
        return os.getpid()


def main():
    with Cluster.simulate("3x4") as cluster:
        plan = rankplan.plan(CONFIG, cluster)
        fleet = Engine.create_group().launch(cluster, plan["rollout"])
        before = fleet.process().wait()

        cluster.stop_node(1)
        failure = fleet.wait_for_failure(timeout=60)
        print(f"lost: rollout {failure.ranks}, with node {failure.dead_nodes}")

        moved = rankplan.replan(plan, cluster.refresh()).plan
        for report in fleet.restart(moved["rollout"], timeout=60):
            old, new = (one.inventory.node(report.node_rank).ip for one in (plan, moved))
            print(f"rollout {report.rank} moved from {old} to {new}, accelerators {','.join(report.accelerators)}")
        fleet.refresh_environment()
        fleet.verify()

        after = fleet.process().wait()
        print("untouched: rollout", *(rank for rank in range(4) if after[rank] == before[rank]))
        print(*fleet.generate("a prompt").wait(), sep="\n")


if __name__ == "__main__":
    main()
