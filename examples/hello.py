"""A program written for RLinf's scheduler, of which only the import line was changed. It greets from every rank.

It runs on the Ray cluster of this machine, or on the one that RAY_ADDRESS names; conf.yaml says on which accelerators.
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
