"""A program for RLinf's scheduler with only its import line changed: every rank logs a greeting.

It runs on the Ray cluster at RAY_ADDRESS, or on this machine. conf.yaml selects the accelerators; on a machine without
any, such as a laptop, one process starts.
"""

import hydra
from rankplan import Cluster, ComponentPlacement, Worker


class Greeter(Worker):
    def __init__(self, greeting):
        super().__init__()
        self.greeting = greeting

    def run(self):
        self.log_info(f"{self.greeting} from rank {self._rank} of {self._world_size}")


@hydra.main(version_base=None, config_path=".", config_name="conf")
def main(cfg):
    cluster = Cluster(cluster_cfg=cfg.cluster)
    placement = ComponentPlacement(cfg, cluster)
    strategy = placement.get_strategy("greeter")
    group = Greeter.create_group(cfg.greeting).launch(cluster, placement_strategy=strategy, name="greeter")
    group.run().wait()


if __name__ == "__main__":
    main()
