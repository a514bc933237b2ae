"""Models of several processes: DistributedDataParallel (a whole copy on every rank) and `fully_shard` (a part on every rank).

Every rank calls with its own share of the data. The data of all ranks, one rank's after the other's, are measured as one
process would measure them, and every rank gets the same answer.

- Copies: the first rank measures, the others wait for its answer.
- Shards: a pass needs every rank, so all ranks make the same passes over the same data (with the first rank's buffers), and each
  reaches the same answer.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from creditscope.errors import CreditscopeError

UNKNOWN = "FullyShardedDataParallel"
"""FSDP of the first kind: it keeps its parameters in one flat tensor, in which no layer can be seen."""

SHARDING = "/torch/distributed/fsdp/"
"""Where the code of `fully_shard` lies."""


class Ranks:
    """The processes that hold one model."""

    def __init__(self, model: nn.Module, sharded: bool, group: Any) -> None:
        self.model = model
        self.sharded = sharded
        self.group = group
        self.rank: int = dist.get_rank(group)
        self.size: int = dist.get_world_size(group)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def all(self, value: Any) -> list[Any]:
        """What every rank gives, by rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found

    def of_first(self, value: Any) -> Any:
        """What the first rank gives."""
        box = [value]
        dist.broadcast_object_list(box, src=dist.get_global_rank(self.group, 0), group=self.group)
        return box[0]

    @contextlib.contextmanager
    def agreed(self) -> Iterator[None]:
        """Work that each rank does by itself: where it fails on one, all ranks raise the one line. Nothing inside may wait for
        another rank."""
        line = ""
        try:
            yield
        except Exception as error:  # whatever it is, the other ranks have to hear of it
            line = one_line(error)
        self._require(self.all(line))

    def _require(self, lines: list[str]) -> None:
        failed = [(rank, line) for rank, line in enumerate(lines) if line]
        if failed:
            raise CreditscopeError(f"rank {failed[0][0]}: {failed[0][1]}")

    def whole(self, batches: Iterable[Any]) -> list[Any]:
        """The batches of all ranks, the first rank's first; on the CPU."""
        mine: list[Any] = []
        with self.agreed():
            mine = [_on_cpu(batch) for batch in batches]
        return [batch for share in self.all(mine) for batch in share]

    def answer(self, work: Callable[[], str]) -> str:
        """The answer (JSON) of work on the whole data: of the first rank for copies, of each rank's own passes for shards."""
        if self.sharded:
            # the same passes everywhere end everywhere in the same way; a rank that fails alone must not wait for the others
            with self._buffers_of_first():
                return work()
        answer, line = "", ""
        if self.first:
            try:
                answer = work()
            except Exception as error:  # the other ranks wait for an answer
                line = one_line(error)
        answer, line = self.of_first((answer, line))
        if line:
            raise CreditscopeError(line)
        return str(answer)

    @contextlib.contextmanager
    def _buffers_of_first(self) -> Iterator[None]:
        """Buffers (running means) are each rank's own: for a while all have those of the first."""
        kept = [(b, b.detach().clone()) for b in self.model.buffers() if not is_sharded(b)]
        source = dist.get_global_rank(self.group, 0)
        try:
            for buffer, copy in kept:
                given = copy.clone()
                dist.broadcast(given, src=source, group=self.group)
                _write(buffer, given)
            yield
        finally:
            for buffer, copy in kept:
                _write(buffer, copy)


@torch.no_grad()
def _write(buffer: Tensor, value: Tensor) -> None:
    buffer.copy_(value)


def ranks_of(model: Any) -> Ranks | None:
    """The processes that hold `model`; None where it belongs to this one alone."""
    if not isinstance(model, nn.Module) or not dist.is_available() or not dist.is_initialized():
        return None
    if any(type(m).__name__ == UNKNOWN for m in model.modules()):
        raise CreditscopeError(f"the model is wrapped in {UNKNOWN}, which hides its layers; shard it by fully_shard")
    copies = next((m for m in model.modules() if isinstance(m, nn.parallel.DistributedDataParallel)), None)
    mesh: Any = next((getattr(p, "device_mesh") for p in model.parameters() if is_sharded(p)), None)  # noqa: B009
    if mesh is not None:
        return Ranks(model, True, mesh.get_group() if mesh.ndim == 1 else dist.group.WORLD)
    return None if copies is None else Ranks(model, False, copies.process_group)


def is_first() -> bool:
    """Is this the process that speaks for all?"""
    return not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0


def one_line(error: Exception) -> str:
    why = " ".join(str(error).split())[:300]
    return why if isinstance(error, CreditscopeError) else f"{type(error).__name__}: {why}"


def is_sharded(p: Tensor) -> bool:
    """Is it a part of a tensor, the rest of which other ranks hold (DTensor)?"""
    return hasattr(p, "device_mesh") and hasattr(p, "to_local")


def has_shards(model: nn.Module) -> bool:
    return any(is_sharded(p) for p in model.parameters())


def own_part(p: Any) -> Tensor:
    """What this rank holds of a tensor."""
    local: Tensor = p.to_local() if is_sharded(p) else p
    return local


def whole_tensor(p: Any) -> Tensor:
    """The whole tensor; of a part only where all ranks ask for it."""
    full: Tensor = p.full_tensor() if is_sharded(p) else p
    return full


def reshard(model: nn.Module) -> None:
    """Every `fully_shard` module holds its part again: a pass without gradients leaves some of them whole."""
    if not dist.is_available() or not dist.is_initialized():
        return
    for module in model.modules():
        if shards_itself(module):
            module.reshard()  # type: ignore[operator]


def shards_itself(module: nn.Module) -> bool:
    """Was `fully_shard` called on this very module?"""
    return callable(getattr(module, "reshard", None)) and callable(getattr(module, "unshard", None))


def recover(model: nn.Module) -> None:
    """After a pass that was broken off: `fully_shard` modules forget it, so that the next pass begins anew."""
    root = next((m for m in model.modules() if shards_itself(m)), None)
    if root is not None and hasattr(root, "reset_iter_state"):
        root.reset_iter_state()  # type: ignore[operator]


def in_sharding() -> bool:
    """Is `fully_shard` at work on its own account, gathering or freeing weights? That is no operation of the model."""
    if not dist.is_available() or not dist.is_initialized():
        return False
    frame: Any = sys._getframe(1)
    while frame is not None:
        if SHARDING in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _on_cpu(batch: Any) -> Any:
    return tree_map(lambda t: t.detach().cpu() if isinstance(t, Tensor) else t, batch)
