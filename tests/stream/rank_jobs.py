"""What one rank does in the tests of several processes: python rank_jobs.py JOB,JOB KIND RANK SIZE FOLDER, one process each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from creditscope import CreditscopeError, Monitor, diagnose
from creditscope.credit import BP, DFA
from creditscope.models import ResMLP
from creditscope.training.build import build_stream

D_IN, C, BATCH, BATCHES = 12, 4, 96, 8
"""96 samples to a batch: the groups of 128 lie across the ranks."""
Batches = list[tuple[Tensor, Tensor]]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.down(F.gelu(self.up(self.norm(h))))


class Net(nn.Module):
    """Seen through hooks; its buffers differ from rank to rank after training."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Linear(D_IN, width)
        self.layers = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, C)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


def data(n: int = BATCHES) -> Batches:
    gen = torch.Generator().manual_seed(1)
    return [(torch.randn(BATCH, D_IN, generator=gen), torch.randint(C, (BATCH,), generator=gen)) for _ in range(n)]


def share(rank: int, size: int) -> Batches:
    """Batches one after the other: the first rank's are the first."""
    each = BATCHES // size
    return data()[rank * each : (rank + 1) * each]


def net(interface: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return ResMLP(D_IN, C, width=16, depth=3) if interface else Net()


def rule(model: Any) -> DFA:
    made = DFA()
    made.setup(build_stream(model, data()[0][0][:3]), C, torch.Generator().manual_seed(0))
    return made


def copies(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def shards(model: Any) -> nn.Module:
    for part in model.layers if isinstance(model, Net) else model.blocks:
        fully_shard(part)
    return fully_shard(model)


WRAPPED: dict[str, Callable[[nn.Module], nn.Module]] = {"ddp": copies, "fsdp": shards}


def step(model: nn.Module, rank: int, size: int) -> None:
    """One step of training on this rank's share."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = share(rank, size)[0]
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


def facts(kind: str, rank: int, size: int, folder: Path) -> Any:
    """Level basic with credit, on a network with hooks and on one with the interface."""
    found = {}
    for name, interface in (("hooks", False), ("interface", True)):
        model = net(interface)
        credit = rule(model) if interface else BP()
        model = WRAPPED[kind](model)
        report = diagnose(model, iter(share(rank, size)), 0.5, 0.4, credit=credit)
        found[name] = json.loads(report.facts.model_dump_json())
        step(model, rank, size)  # it trains on as if nothing had been
        again = diagnose(model, share(rank, size), credit=credit)
        assert again.facts.loss != report.facts.loss
    return found


def full(kind: str, rank: int, size: int, folder: Path) -> Any:
    report = diagnose(WRAPPED[kind](net()), share(rank, size), credit=BP(), level="full")
    return json.loads(report.facts.model_dump_json())


def monitor(kind: str, rank: int, size: int, folder: Path) -> Any:
    model = WRAPPED[kind](net())
    watching = Monitor(model, share(rank, size), path=folder / "run", stop_on=("D1",), credit=BP())
    for epoch in range(3):
        watching.step(epoch)
        step(model, rank, size)
    return {"history": watching.history, "stop": watching.should_stop}


def broken(kind: str, rank: int, size: int, folder: Path) -> Any:
    """The last rank's data do not fit; the lines that every rank raises."""
    mine = share(rank, size)
    good = [lambda: mine] * 3
    bad = [
        lambda: [(x, y.index_fill(0, torch.tensor([3]), 13)) for x, y in mine],
        lambda: [(x[:, :5], y) for x, y in mine],
        _failing,
    ]
    lines = {}
    model = WRAPPED[kind](net())
    for name, batches in zip(("labels", "shape", "reading"), bad if rank == size - 1 else good, strict=True):
        calls: dict[str, Any] = {"diagnose": diagnose, "Monitor": _watched}
        for what, call in calls.items():
            try:
                call(model, batches())
            except CreditscopeError as error:
                lines[f"{name}, {what}"] = str(error)
    step(model, rank, size)  # it trains on
    lines["after"] = f"{diagnose(model, mine).facts.loss:.5g}"
    return lines


def _watched(model: nn.Module, batches: Any) -> None:
    Monitor(model, batches).step(0)


def _failing() -> Any:
    yield share(0, BATCHES)[0]
    raise OSError("the disk is gone")


JOBS = {"facts": facts, "full": full, "monitor": monitor, "broken": broken}


def main(jobs: str, kind: str, rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size, timeout=timedelta(seconds=240)
    )
    found = {job: JOBS[job](kind, rank, size, folder) for job in jobs.split(",")}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
