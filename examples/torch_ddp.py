"""Train a small model with DistributedDataParallel in one component, and send its weights to another.

It needs PyTorch, but no GPU: four processes run on this machine, and talk over gloo. The actors train, and after each
round every rollout receives the weights from the actor that the plan's weight map names.
"""

import rankplan
import torch
import torch.distributed as dist
from rankplan import Cluster, Worker
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CONFIG = {"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-1", "rollout": "2-3"}}}
TRUE_WEIGHTS = torch.tensor([[2.0], [-3.0], [0.5]])


def samples(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs @ TRUE_WEIGHTS + 1.0


class Member(Worker):
    """A process of the process group that joins both components."""

    def join(self, address: str, first: int, size: int, actors: int) -> None:
        dist.init_process_group("gloo", init_method=address, rank=first + self.rank, world_size=size)
        self.actors = dist.new_group(range(actors))  # all processes must take part


class Actor(Member):
    def build(self) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Linear(3, 1), process_group=self.actors)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.steps = 0

    @Worker.timer
    def train(self, steps: int) -> float:
        for _ in range(steps):
            self.steps += 1
            inputs, targets = samples(self.steps * self.world_size + self.rank, 32)
            loss = nn.functional.mse_loss(self.model(inputs), targets)
            self.optimizer.zero_grad()
            loss.backward()  # averages the gradients of the actors
            self.optimizer.step()
        return loss.item()

    def send(self, receivers: list[int]) -> None:
        for receiver in receivers:
            for weight in self.model.parameters():
                dist.send(weight.detach(), receiver)


class Rollout(Member):
    def build(self) -> None:
        self.model = nn.Linear(3, 1)

    def receive(self, senders: list[int]) -> float:
        for weight in self.model.parameters():
            dist.recv(weight.data, senders[self.rank])
        inputs, targets = samples(0, 256)
        return nn.functional.mse_loss(self.model(inputs), targets).item()


def main() -> None:
    with Cluster.simulate("1x4") as cluster:
        plan = rankplan.plan(CONFIG, cluster)
        actors = Actor.create_group().launch(cluster, plan["actor"])
        rollouts = Rollout.create_group().launch(cluster, plan["rollout"])
        port = actors.free_ports()[0].start
        address = f"tcp://{cluster.inventory.node(0).ip}:{port}"
        size = len(plan["actor"]) + len(plan["rollout"])
        joins = [
            actors.join(address, 0, size, len(plan["actor"])),
            rollouts.join(address, len(plan["actor"]), size, len(plan["actor"])),
        ]
        for call in joins:
            call.wait()
        actors.build().wait()
        rollouts.build().wait()

        weight_map = plan.weight_map("actor", "rollout")
        senders = [weight_map.sender_of(slot) for slot in weight_map.receivers]
        for round_ in range(5):
            training = actors.train(10)
            training.wait()
            sends = [
                actors.execute_on(rank).send([len(plan["actor"]) + slot for slot in receivers])
                for rank, receivers in enumerate(weight_map)
            ]
            losses = rollouts.receive(senders).wait()
            for call in sends:
                call.wait()
            seconds = max(training.durations()["train"])
            print(f"round {round_}: trained {seconds:.2f} s, loss of the rollouts {losses[0]:.4f} {losses[1]:.4f}")


if __name__ == "__main__":
    main()
