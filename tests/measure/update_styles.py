"""Programs that make one update, in the styles in which other people write them; what each depends on is known.

`STYLES`: name -> (update, label, network, batch, options of `certify`, answers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap
from torch.utils.checkpoint import checkpoint

from creditscope.measure.certificate import BACKPROPAGATION, GLOBAL, LOCAL, SIGNS, TRANSPORT, UNDETERMINED

from .update_rules import drawn

D, C, N, L = 32, 6, 8, 3
NO, YES = "no", "yes"
Style = tuple[Callable[..., Any], str, Callable[[], nn.Module], Callable[[], Any], dict[str, Any], dict[str, str]]
STYLES: dict[str, Style] = {}


class MLP(nn.Module):
    """inp, L blocks of a linear map and tanh, out."""

    def __init__(self, linear: Callable[[int, int], nn.Module] = nn.Linear, behind: Any = None) -> None:
        super().__init__()
        self.inp = nn.Linear(D, D)
        extra = (lambda: []) if behind is None else (lambda: [behind()])
        self.body = nn.ModuleList(nn.Sequential(linear(D, D), nn.Tanh(), *extra()) for _ in range(L))
        self.out = nn.Linear(D, C)

    def states(self, x: Tensor) -> list[Tensor]:
        h = [torch.tanh(self.inp(x))]
        for block in self.body:
            h.append(block(h[-1]))
        return h

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.states(x)[-1])
        return out


def data(n: int = N) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    return torch.randn(n, D, generator=g), torch.randint(C, (n,), generator=g)


def images() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    return torch.randn(4, 3, 8, 8, generator=g), torch.randint(C, (4,), generator=g)


def style(
    label: str, make: Callable[[], nn.Module] = MLP, batch: Any = data, options: Any = None, **answers: str
) -> Any:
    def keep(update: Any) -> Any:
        STYLES[f"{update.__name__} {len(STYLES)}"] = update, label, make, batch, dict(options or {}), answers
        return update

    return keep


def loss_of(m: Any, b: Any) -> Tensor:
    return F.cross_entropy(m(b[0]), b[1])


def error(logits: Tensor, y: Tensor) -> Tensor:
    return (logits.softmax(1) - F.one_hot(y, C)).detach() / len(y)


FIXED = [drawn(C, D, seed=300 + k) for k in range(L + 1)]


# ---- backpropagation by other means ----------------------------------------------------------------------------------


@style(BACKPROPAGATION, lambda: MLP(behind=lambda: nn.BatchNorm1d(D)), samples=NO)
@style(BACKPROPAGATION, lambda: MLP(behind=lambda: nn.Dropout(0.3)), feedback="tied to the forward weights")
@style(BACKPROPAGATION, lambda: MLP(lambda a, b: nn.utils.parametrizations.weight_norm(nn.Linear(a, b))))
@style(BACKPROPAGATION, lambda: MLP(lambda a, b: nn.utils.parametrizations.spectral_norm(nn.Linear(a, b))))
def backward(m: Any, b: Any) -> None:
    loss_of(m, b).backward()


def nesterov(m: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2)


@style(BACKPROPAGATION, options={"optimizer": nesterov})
def momentum(m: Any, b: Any, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss_of(m, b).backward()
    optimizer.step()


@style(BACKPROPAGATION)
def accumulation(m: Any, b: Any) -> None:
    for x, y in zip(b[0].split(2), b[1].split(2), strict=True):
        (F.cross_entropy(m(x), y) * len(y) / len(b[1])).backward()


@style(BACKPROPAGATION)
def loss_scaling(m: Any, b: Any) -> None:
    (loss_of(m, b) * 2**16).backward()
    for p in m.parameters():
        p.grad /= 2**16


def values(m: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach() for k, v in m.named_parameters()}


@style(BACKPROPAGATION)
def by_torch_func(m: Any, b: Any) -> None:
    g = grad(lambda p: F.cross_entropy(functional_call(m, p, (b[0],)), b[1]))(values(m))
    for k, p in m.named_parameters():
        p.grad = g[k]


def per_sample(m: Any, b: Any) -> dict[str, Tensor]:
    def loss(p: Any, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(m, p, (x[None],)), y[None])

    found: dict[str, Tensor] = vmap(grad(loss), in_dims=(None, 0, 0))(values(m), *b)
    return found


@style(BACKPROPAGATION)
def mean_of_samples(m: Any, b: Any) -> None:
    g = per_sample(m, b)
    for k, p in m.named_parameters():
        p.grad = g[k].mean(0)


@style(
    TRANSPORT, backpropagation=NO, options={"loss_fn": lambda logits, y: F.cross_entropy(logits, y, reduction="none")}
)
@style(TRANSPORT, backpropagation=UNDETERMINED)
def each_sample_clipped(m: Any, b: Any) -> None:
    g = per_sample(m, b)
    sizes = torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
    share = (1e-2 / sizes).clamp(max=1)
    for k, p in m.named_parameters():
        p.grad = torch.einsum("n,n...->...", share, g[k]) / len(share)


@style(BACKPROPAGATION)
def checkpoints(m: Any, b: Any) -> None:
    h = torch.tanh(m.inp(b[0]))
    for k, block in enumerate(m.body):
        h = checkpoint(block, h, use_reentrant=bool(k % 2))
    F.cross_entropy(m.out(h), b[1]).backward()


@style(BACKPROPAGATION)
def chain_by_hand(m: Any, b: Any) -> None:
    with torch.no_grad():
        h = m.states(b[0])
    top = h[-1].requires_grad_()
    F.cross_entropy(m.out(top), b[1]).backward()
    g = top.grad
    for k in reversed(range(L)):
        below = h[k].detach().requires_grad_()
        m.body[k](below).backward(g)
        g = below.grad
    torch.tanh(m.inp(b[0])).backward(g)


copies = [drawn(D, D, seed=320 + k) for k in range(L)]


@style(BACKPROPAGATION, feedback="tied to the forward weights")
def feedback_copied_at_each_call(m: Any, b: Any) -> None:
    for k in range(L):
        copies[k] = copies[k].to(b[0]).copy_(m.body[k][0].weight.detach())
    with torch.no_grad():
        h = m.states(b[0])
        delta = error(m.out(h[-1]), b[1])
        m.out.weight.grad, m.out.bias.grad = delta.T @ h[-1], delta.sum(0)
        delta = delta @ m.out.weight
        for k in reversed(range(L)):
            delta = delta * (1 - h[k + 1] ** 2)
            m.body[k][0].weight.grad, m.body[k][0].bias.grad = delta.T @ h[k], delta.sum(0)
            delta = delta @ copies[k]


class Labelled(nn.Module):
    """Takes labels, gives a mapping."""

    def __init__(self) -> None:
        super().__init__()
        self.net = MLP()

    def forward(self, inputs: Any = None, labels: Any = None) -> dict[str, Tensor]:
        logits = self.net(inputs)
        return {"logits": logits} | ({} if labels is None else {"loss": F.cross_entropy(logits, labels)})


@style(
    BACKPROPAGATION, Labelled, lambda: dict(zip(("inputs", "labels"), data(), strict=True)), {"blocks": "net.body.*"}
)
def model_with_labels(m: Any, b: Any) -> None:
    m(**b)["loss"].backward()


def squared(logits: Tensor, y: Tensor) -> Tensor:
    return (logits - F.one_hot(y, C)).square().mean(1)


@style(BACKPROPAGATION, options={"loss_fn": squared})
@style(TRANSPORT, backpropagation=UNDETERMINED)
def another_loss(m: Any, b: Any) -> None:
    squared(m(b[0]), b[1]).mean().backward()


@style(TRANSPORT, backpropagation=NO)
def scaled_at_each_layer(m: Any, b: Any) -> None:
    h = m.states(b[0])
    for state in h:
        state.register_hook(lambda g: 0.5 * g)
    F.cross_entropy(m.out(h[-1]), b[1]).backward()


# ---- detach in a wrong place -----------------------------------------------------------------------------------------


@style(GLOBAL, between="not applicable", readout=YES, backpropagation=NO)
def only_the_last_block_is_reached(m: Any, b: Any) -> None:
    F.cross_entropy(m.out(m.body[-1](m.states(b[0])[-2].detach())), b[1]).backward()


@style(TRANSPORT, between=YES, backpropagation=NO)
def the_first_block_is_cut_off(m: Any, b: Any) -> None:
    h = m.body[0](torch.tanh(m.inp(b[0]))).detach()
    for block in m.body[1:]:
        h = block(h)
    F.cross_entropy(m.out(h), b[1]).backward()


class StraightThrough(nn.Linear):
    """W forward, B backward; `whole`: W backward as well, a detach being forgotten."""

    whole = False
    back: Tensor

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)
        self.register_buffer("back", drawn(b, a, seed=a + b))

    def forward(self, x: Tensor) -> Tensor:
        back = F.linear(x, self.back)
        return F.linear(x if self.whole else x.detach(), self.weight, self.bias) + back - back.detach()


class Forgotten(StraightThrough):
    whole = True


style(GLOBAL, lambda: MLP(StraightThrough), between=NO, readout=YES)(backward)
style(TRANSPORT, lambda: MLP(Forgotten), between=YES)(backward)


class Signs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return g @ w.sign() * 0.1, g.T @ x


class SignLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Signs.apply(x, self.weight) + self.bias
        return out


style(SIGNS, lambda: MLP(SignLinear))(backward)


# ---- feedback --------------------------------------------------------------------------------------------------------


@style(GLOBAL, lambda: MLP(behind=lambda: nn.Dropout(0.3)), feedback=UNDETERMINED)
@style(GLOBAL, lambda: MLP(behind=lambda: nn.BatchNorm1d(D)), samples=NO, feedback="fixed")
@style(UNDETERMINED, lambda: MLP(lambda a, b: nn.utils.parametrizations.weight_norm(nn.Linear(a, b))))
def direct(m: Any, b: Any) -> None:
    h, outs = torch.tanh(m.inp(b[0])).detach(), []
    for block in m.body:
        outs.append(block(h))
        h = outs[-1].detach()
    logits = m.out(h)
    F.cross_entropy(logits, b[1]).backward()
    for k, out in enumerate(outs):
        out.backward(error(logits, b[1]) @ FIXED[k].to(out))


class Gated(nn.Module):
    """Two halves of one product."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(drawn(2 * b, a, seed=5))

    def forward(self, x: Tensor) -> Tensor:
        u, v = torch.einsum("oi,ni->no", self.weight, x).chunk(2, 1)
        return u * torch.sigmoid(v)


style(GLOBAL, lambda: MLP(Gated), between=NO, readout=NO)(direct)
style(BACKPROPAGATION, lambda: MLP(Gated))(backward)


class ZeroBranch(nn.Module):
    """h + f(h), the last weight of f being zero."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.LayerNorm(a), nn.Linear(a, b), nn.Linear(b, a)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.last(F.gelu(self.first(self.norm(h))))
        return out


class ZeroNet(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(ZeroBranch(D, D) for _ in range(L))

    def states(self, x: Tensor) -> list[Tensor]:
        h = [self.inp(x)]
        for block in self.body:
            h.append(h[-1] + block(h[-1]))
        return h


style(BACKPROPAGATION, ZeroNet, between=YES)(backward)


@style(GLOBAL, ZeroNet, between=NO, readout=NO)
def direct_to_branches(m: Any, b: Any) -> None:
    with torch.no_grad():
        h = m.states(b[0])
    for k, block in enumerate(m.body):
        block(h[k]).backward(error(m.out(h[-1]), b[1]) @ FIXED[k].to(h[k]))


def back_by(matrices: list[Tensor], m: Any, b: Any) -> list[Tensor]:
    """Gradients of the blocks' weights with these matrices on the way back."""
    with torch.no_grad():
        h = m.states(b[0])
        delta = error(m.out(h[-1]), b[1]) @ FIXED[L].to(h[0])
        made = []
        for k in reversed(range(L)):
            delta = delta * (1 - h[k + 1] ** 2)
            m.body[k][0].weight.grad = delta.T @ h[k]
            made.append(m.body[k][0].weight.grad)
            delta = delta @ matrices[k].to(delta)
    return made[::-1]


mirrored = [drawn(D, D, seed=340 + k) for k in range(L)]


@style(GLOBAL, between=NO, feedback="learned")
def kolen_pollack(m: Any, b: Any) -> None:
    for k, g in enumerate(back_by(mirrored, m, b)):
        mirrored[k] = 0.9 * mirrored[k] - 0.5 * g.to(mirrored[k])


class Targets:
    """Difference target propagation; the decoders learn on noisy states."""

    def __init__(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.decoders = nn.ModuleList(nn.Linear(D, D) for _ in range(L))
        self.optimizer = torch.optim.SGD(self.decoders.parameters(), lr=0.1)

    def __call__(self, m: Any, b: Any) -> None:
        self.decoders.to(b[0])
        with torch.no_grad():
            h = m.states(b[0])
        top = h[-1].clone().requires_grad_()
        F.cross_entropy(m.out(top), b[1]).backward()
        target = h[-1] - 0.5 * top.grad
        for k in reversed(range(L)):
            (m.body[k](h[k]) - target).square().sum(1).mean().backward()
            with torch.no_grad():
                target = h[k] + torch.tanh(self.decoders[k](target)) - torch.tanh(self.decoders[k](h[k + 1]))
        self.optimizer.zero_grad()
        for k in range(1, L):
            with torch.no_grad():
                noisy = h[k] + 0.1 * torch.randn_like(h[k])
                above = m.body[k](noisy)
            (torch.tanh(self.decoders[k](above)) - noisy).square().mean().backward()
        self.optimizer.step()


targets = Targets()


@style(GLOBAL, readout=YES, feedback="learned")
def target_propagation(m: Any, b: Any) -> None:
    targets(m, b)


@style(TRANSPORT)
def predictive_coding(m: Any, b: Any) -> None:
    with torch.no_grad():
        h = m.states(b[0])

    def energy(states: list[Tensor]) -> Tensor:
        below = [h[0], *states]
        total = sum(0.5 * (s - m.body[k](below[k])).square().sum() for k, s in enumerate(states))
        return total + F.cross_entropy(m.out(states[-1]), b[1], reduction="sum")

    states = [t.clone().requires_grad_() for t in h[1:]]
    for _ in range(6):
        g = torch.autograd.grad(energy(states), states)
        states = [(s - 0.2 * d).detach().requires_grad_() for s, d in zip(states, g, strict=True)]
    energy([s.detach() for s in states]).backward()


# ---- one number for all ----------------------------------------------------------------------------------------------


@style(GLOBAL, between=NO, teaching="the output error")
def forward_gradient(m: Any, b: Any) -> None:
    p = values(m)
    v = {k: torch.randn_like(t) for k, t in p.items()}
    slope = jvp(lambda p: F.cross_entropy(functional_call(m, p, (b[0],)), b[1]), (p,), (v,))[1]
    for k, q in m.named_parameters():
        q.grad = slope * v[k]


@style(UNDETERMINED)
def evolution(m: Any, b: Any) -> None:
    """Losses at other weights: whether these are used is not told from how."""
    p = values(m)
    with torch.no_grad():
        for _ in range(2):
            v = {k: torch.randn_like(t) for k, t in p.items()}
            ends = [functional_call(m, {k: p[k] + s * v[k] for k in p}, (b[0],)) for s in (1e-2, -1e-2)]
            gain = F.cross_entropy(ends[0], b[1]) - F.cross_entropy(ends[1], b[1])
            for k, q in m.named_parameters():
                q.grad = gain / 2e-2 * v[k] + (0 if q.grad is None else q.grad)


@style(GLOBAL, teaching="the output error")
def hebbian_by_reward(m: Any, b: Any) -> None:
    with torch.no_grad():
        h = m.states(b[0])
        reward = 1.5 - F.cross_entropy(m.out(h[-1]), b[1])
    for k, block in enumerate(m.body):
        block[0].weight.grad = -reward * h[k + 1].T @ h[k] / N


@style(GLOBAL)
def node_perturbation(m: Any, b: Any) -> None:
    with torch.no_grad():
        h = m.states(b[0])
        noisy, noise = h[0], []
        for block in m.body:
            noise.append(1e-3 * torch.randn_like(noisy))
            noisy = block(noisy) + noise[-1]
        losses = [F.cross_entropy(m.out(t), b[1], reduction="none") for t in (noisy, h[-1])]
    for k, block in enumerate(m.body):
        gain = (losses[0] - losses[1]).unsqueeze(1) * noise[k] * 1e6
        block[0].weight.grad = (gain * (1 - h[k + 1] ** 2)).T @ h[k] / len(gain)


# ---- local -----------------------------------------------------------------------------------------------------------


@style(LOCAL, teaching="labels alone")
def forward_forward(m: Any, b: Any) -> None:
    x, y = b
    pair = []
    for labels in (y, (y + 1) % C):
        shown = torch.cat([F.one_hot(labels, C).to(x), x[:, C:]], 1)
        pair.append(torch.tanh(m.inp(shown)).detach())
    for block in m.body:
        good, bad = (block(F.normalize(h)) for h in pair)
        goodness = [h.square().mean(1) for h in (good, bad)]
        (F.softplus(0.1 - goodness[0]) + F.softplus(goodness[1] - 0.1)).mean().backward()
        pair = [good.detach(), bad.detach()]


@style(LOCAL, teaching="no teaching signal", head=YES)
def hebbian_with_a_global_clip(m: Any, b: Any) -> None:
    """The clip makes every update depend on the labels, which train the head, by one common factor."""
    with torch.no_grad():
        h = m.states(b[0])
    F.cross_entropy(m.out(h[-1]), b[1]).backward()
    for k, block in enumerate(m.body):
        w, z = block[0].weight, h[k + 1]
        w.grad = ((z.T @ z).tril() @ w.detach() - z.T @ h[k]) / len(z)
    nn.utils.clip_grad_norm_(m.parameters(), 1e-3)


@style(LOCAL, teaching="labels alone")
def similarity_matching(m: Any, b: Any) -> None:
    """Which samples share a class: the names of the classes do not matter."""
    h = torch.tanh(m.inp(b[0])).detach()
    same = (b[1][:, None] == b[1]).to(h)
    for block in m.body:
        h = block(h)
        F.mse_loss(h @ h.T / D, same).backward()
        h = h.detach()


class Readouts(MLP):
    """Local readouts, which the forward pass does not use: beside the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.readouts = nn.ModuleList(nn.Linear(D, C) for _ in range(L))

    def readout_of(self, k: int) -> Any:
        return self.readouts[k]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.readout = nn.Linear(D, D), nn.Linear(D, C)

    def forward(self, h: Tensor) -> Tensor:
        return torch.tanh(self.linear(h))


class InnerReadouts(MLP):
    """The same inside the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList(Inner() for _ in range(L))

    def readout_of(self, k: int) -> Any:
        return self.body[k].readout


@style(LOCAL, Readouts, readout=NO, teaching="labels alone", head=YES)
@style(LOCAL, InnerReadouts, between=NO, readout=NO, teaching="labels alone", head=YES)
def local_losses(m: Any, b: Any) -> None:
    h = torch.tanh(m.inp(b[0])).detach()
    for k, block in enumerate(m.body):
        h = block(h)
        F.cross_entropy(m.readout_of(k)(h), b[1]).backward()
        h = h.detach()
    F.cross_entropy(m.out(h), b[1]).backward()


@style(TRANSPORT, Readouts, between=YES)
@style(TRANSPORT, InnerReadouts, between=YES)
def local_losses_not_detached(m: Any, b: Any) -> None:
    h = m.states(b[0])
    torch.stack([F.cross_entropy(m.readout_of(k)(h[k + 1]), b[1]) for k in range(L)]).sum().backward()


class Maps(nn.Module):
    """A small residual network of convolutions."""

    def __init__(self, channels: int = 24) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
            for _ in range(L)
        )
        self.out = nn.Linear(channels, C)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.stem(x))
        for block in self.body:
            h = h + block(h)
        out: Tensor = self.out(h.mean((2, 3)))
        return out


style(BACKPROPAGATION, Maps, images)(backward)


@style(LOCAL, Maps, images, teaching="labels alone")
def local_losses_of_maps(m: Any, b: Any) -> None:
    h = torch.relu(m.stem(b[0])).detach()
    for k, block in enumerate(m.body):
        h = h + block(h)
        F.cross_entropy(h.mean((2, 3)) @ FIXED[k][:, :24].T.to(h), b[1]).backward()
        h = h.detach()


class Attending(nn.Module):
    def __init__(self, d: int = 64) -> None:
        super().__init__()
        self.inp = nn.Linear(D // 4, d)
        self.body = nn.ModuleList(
            nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.out = nn.Linear(d, C)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inp(x.view(len(x), 4, -1))
        for block in self.body:
            h = block(h)
        out: Tensor = self.out(h.mean(1))
        return out


style(BACKPROPAGATION, Attending, inside=YES)(backward)


@style(GLOBAL, Attending, between=NO, inside=YES, readout=NO)
def direct_to_tokens(m: Any, b: Any) -> None:
    h, outs = m.inp(b[0].view(len(b[0]), 4, -1)).detach(), []
    for block in m.body:
        outs.append(block(h))
        h = outs[-1].detach()
    e = error(m.out(h.mean(1)), b[1])
    for k, out in enumerate(outs):
        out.backward((e @ torch.cat([FIXED[k], FIXED[k + 1]], 1).to(e)).unsqueeze(1).expand_as(out))
