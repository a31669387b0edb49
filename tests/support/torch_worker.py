"""The worker classes of the tests with PyTorch."""

from __future__ import annotations

import torch
import torch.distributed as dist
from rankplan import Worker
from torch.distributed.device_mesh import init_device_mesh


class Meshed(Worker):
    """Builds the mesh of its component and reduces over each of its dimensions."""

    def __init__(self) -> None:
        dist.init_process_group("gloo")

    def reduced(self, shape: tuple[int, ...], names: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
        """Return, by dimension, the sum of the ranks and the local rank."""
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        sums = {}
        for name in names:
            total = torch.tensor([float(self.rank)])
            dist.all_reduce(total, group=mesh.get_group(name))
            sums[name] = int(total.item())
        return sums, {name: mesh.get_local_rank(name) for name in names}

    def platform(self) -> str:
        return str(self.torch_platform.__name__)
