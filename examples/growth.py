"""A rollout that grows from two engines to four and back, while it answers. An engine has two accelerators.

    python examples/growth.py

The nodes are simulated on this machine; on a real cluster, `Cluster()` takes the place of `Cluster.simulate`.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import rankplan
from rankplan import Cluster, Worker

ACTOR = {"placement": "0-3", "parallel": {"tp": 2}}
ROLLOUT = {"placement": "4-7:0-1", "parallel": {"tp": 2}}
CONFIG = {"cluster": {"num_nodes": 2, "component_placement": {"actor": ACTOR, "rollout": ROLLOUT}}}


class Engine(Worker):
    def generate(self, prompt):
        time.sleep(0.2)
        return f"engine {self.rank} answers {prompt}"

    def process(self):
        return os.getpid()


def main():
    with Cluster.simulate("3x4") as cluster, ThreadPoolExecutor(1) as thread:
        plan = rankplan.plan(CONFIG, cluster)
        fleet = Engine.create_group().launch(cluster, plan["rollout"])
        before = fleet.process().wait()

        larger = rankplan.replan(plan, cluster.inventory, grow={"rollout": 2}).plan
        growing = thread.submit(fleet.restart, larger)
        meanwhile = set()
        while not growing.done():
            meanwhile.update(fleet.execute_on(0, 1).generate("while others start").wait())
        print(*sorted(meanwhile), sep="\n")
        added = [report.rank for report in growing.result()]
        for rank in added:
            row = larger["rollout"][rank]
            print(f"rollout {rank} started on {larger.inventory.node(row.cluster_node_rank).ip}")
        for sender, slots in enumerate(larger.weight_map("actor", "rollout", ranks=added)):
            print(f"actor {sender} sends weights to slots", *slots)
        after = fleet.process().wait()
        print("untouched: rollout", *(rank for rank in range(2) if after[rank] == before[rank]))

        answers = fleet.generate("its last prompt before the change")
        smaller = rankplan.replan(larger, cluster.inventory, shrink={"rollout": 2}).plan
        fleet.restart(smaller)  # returns once engines 2 and 3 have finished
        print(*answers.wait(), sep="\n")
        print(*fleet.generate("a prompt after it").wait(), sep="\n")


if __name__ == "__main__":
    main()
