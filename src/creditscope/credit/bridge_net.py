"""What both bridges are made of: one small network for all layers, trained online by its own optimiser."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from creditscope.credit.adamw import AdamW
from creditscope.credit.base import CreditBatch, CreditRule, require_fit
from creditscope.errors import CreditscopeError
from creditscope.stream.devices import moved
from creditscope.stream.interface import Stream


class BridgeNet(nn.Module):
    """(x_l, t_l[, label or error]) -> output, the same weights for every layer l.

    x_l [B, d_l] goes through a linear map to `hidden` features (one map for all layers where all d_l are equal, otherwise
    one for each layer), the depth embedding t_l and the condition are added, then `layers` times GELU and a linear map;
    the last of these has `n_out` outputs.
    """

    def __init__(
        self, widths: Sequence[int], n_out: int, hidden: int, layers: int, n_classes: int, condition: str = "none"
    ) -> None:
        super().__init__()
        self.shared = len(set(widths)) == 1
        self.inputs = nn.ModuleList(nn.Linear(d, hidden) for d in (widths[:1] if self.shared else widths))
        self.depth = nn.Embedding(len(widths), hidden)
        self.condition = None if condition == "none" else nn.Linear(n_classes, hidden, bias=False)
        sizes = [hidden] * layers + [n_out]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, xs: Sequence[Tensor], layers: Sequence[int], condition: Tensor | None = None) -> Tensor:
        """xs[i]: [B, d_l] for l = layers[i], without gaps; condition: [B, C] or None; returns [len(layers), B, n_out]."""
        if self.shared:
            z = self.inputs[0](torch.stack(list(xs)))
        else:
            z = torch.stack([self.inputs[layer](x) for layer, x in zip(layers, xs, strict=True)])
        # the index is made where the weights are: a list would be copied there at every call
        index = torch.arange(layers[0], layers[-1] + 1, device=z.device)
        z = z + self.depth.weight[index].unsqueeze(1)
        if self.condition is not None:
            assert condition is not None
            z = z + self.condition(condition)
        for linear in self.hidden:
            z = linear(F.gelu(z))
        return z


class Learner:
    """A network and the AdamW that trains it; everything of both is in `state`."""

    def __init__(self, net: nn.Module, lr: float) -> None:
        self.net = net = net.float()  # whatever torch's default dtype is
        self.optimizer = AdamW(dict(net.named_parameters()), lr, weight_decay=0.01)

    def step(self, loss: Tensor) -> None:
        """One step of the optimiser; only this network's parameters get a gradient."""
        params = list(self.net.parameters())
        for p, g in zip(params, torch.autograd.grad(loss, params, allow_unused=True), strict=True):
            p.grad = g
        self.optimizer.step()
        self.optimizer.zero_grad()

    def to_device(self, device: torch.device) -> None:
        held, self.net = self.optimizer.state(), self.net.to(device)
        self.optimizer = AdamW(dict(self.net.named_parameters()), self.optimizer.lr, self.optimizer.weight_decay)
        self.optimizer.load(held)

    def state(self) -> dict[str, Tensor]:
        found = {f"net.{name}": t.detach().clone() for name, t in self.net.state_dict().items()}
        return found | {f"optim.{name}": t.clone() for name, t in self.optimizer.state().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        load_net(self.net, state, "net.")
        self.optimizer.load({key[6:]: t for key, t in state.items() if key.startswith("optim.")})


class Learning(CreditRule):
    """A rule with a network of its own, which learns while the model is trained and is saved with its optimiser."""

    numbers: tuple[str, ...] = ("widths", "n_classes")
    """The first two are what the network is built from."""
    options: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.widths: list[int] = []
        self.n_classes = 0
        self.learner: Learner | None = None

    @abstractmethod
    def network(self, widths: list[int], size: int) -> nn.Module:
        """The network that learns; both sizes are kept as well."""

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        with seeded(generator):
            self.learner = Learner(self.network(list(stream.widths), n_classes), self.options.lr)

    def attach(self, stream: Stream) -> None:
        require_fit(f"the network of {self.name!r} is made for widths", self.widths, stream.widths)
        super().attach(stream)

    def state(self) -> dict[str, Tensor]:
        return {} if self.learner is None else {**super().state(), **self.learner.state()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        widths, size, *_ = self.numbers
        with torch.random.fork_rng(devices=[]):
            self.learner = Learner(self.network(state[widths].tolist(), int(state[size])), self.options.lr)
        super().load(state)
        made(self.learner, self.name).load(state)


def load_net(net: nn.Module, state: Mapping[str, Tensor], prefix: str) -> None:
    """Copy the tensors under `prefix` into the network; one line where they do not fit the rule's options."""
    for name, own in net.state_dict().items():
        saved = state[prefix + name]
        if saved.shape != own.shape:
            raise CreditscopeError(
                f"{prefix}{name} of the saved bridge has shape {list(saved.shape)} and these options give {list(own.shape)}"
            )
        own.copy_(saved)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Modules made inside draw their weights by the rule's generator; the global RNG is left as it was."""
    seed = draw_seed(generator)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone
        yield


def draw_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**31, (), generator=generator))


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """BatchNorm in train mode goes on using the batch, and its running statistics see the free phase only."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


@contextmanager
def same_buffers(model: nn.Module) -> Iterator[None]:
    """Extra forward passes in training mode leave no trace in running statistics (BatchNorm) or in other buffers."""
    kept = [(buffer, buffer._version, buffer.clone()) for buffer in model.buffers()]
    try:
        with statistics_kept(model):  # not written at all: a graph that was built before may still need them
            yield
    finally:
        for buffer, version, before in kept:
            if buffer._version != version:
                buffer.copy_(before)


def read_states(batch: CreditBatch) -> list[Tensor]:
    """The vectors read at each layer, [B, d_l] in float32 (the precision of the bridges)."""
    return [batch.stream.read_state(h.detach()).float() for h in batch.hiddens]


def condition_of(batch: CreditBatch, condition: str) -> Tensor | None:
    """What the network sees beside h_l: nothing, the label (one-hot) or e; [B, C] in float32."""
    if condition == "none":
        return None
    if condition == "label":
        return F.one_hot(batch.y, batch.logits.shape[-1]).float()
    return batch.error.float()


def made(learner: Learner | None, name: str) -> Learner:
    if learner is None:
        raise CreditscopeError(f"credit rule {name!r} has no network yet; call rule.setup(...) or rule.load(...)")
    return learner


def perturbed(h: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """h + ξ in the native shape; ξ is Gaussian with `noise` times the RMS of each sample."""
    rms = h.square().mean(dim=tuple(range(1, h.dim())), keepdim=True).sqrt()
    return h + noise * rms * moved(torch.randn(h.shape, generator=generator), h)
