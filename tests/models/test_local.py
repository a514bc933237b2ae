"""Gradients by hand against autograd of the modules, and every change from outside that sends a branch back to its modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from creditscope.models import local
from creditscope.models.resmlp import MLPBranch


def branch(ratio: int = 1) -> MLPBranch:
    torch.manual_seed(3)
    made = MLPBranch(6, ratio).double()
    with torch.no_grad():
        for p in made.parameters():
            p.normal_()
    return made


local_branch = torch.no_grad()(local.local_branch)  # as the objective calls it


def known(made: nn.Module, h: Tensor) -> Any:
    """f and its `Pull`, which have to be known."""
    found = local_branch(made, h)
    assert found is not None
    return found


def pulled(made: nn.Module, h: Tensor, push: Tensor, seed: int = 0) -> None:
    """Put its gradients into .grad by hand; they and f must be those of autograd."""
    torch.manual_seed(seed)  # of a dropout
    wanted = made(h)
    reference = torch.autograd.grad(wanted, list(made.parameters()), push)
    torch.manual_seed(seed)
    f, pull = known(made, h)
    torch.testing.assert_close(f, wanted, rtol=1e-12, atol=1e-12)
    assert not f.requires_grad
    pull(push)
    for p, want in zip(made.parameters(), reference, strict=True):
        torch.testing.assert_close(p.grad, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("ratio", [1, 2])
def test_branch_and_gradients_are_those_of_the_modules(ratio):
    made = branch(ratio)
    h, push = torch.randn(7, 6).double(), torch.randn(7, 6).double()
    pulled(made, h, push)
    once = [p.grad.clone() for p in made.parameters() if p.grad is not None]
    known(made, h)[1](push)  # gradients add up, as they do in autograd
    for p, want in zip(made.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * want, rtol=1e-10, atol=1e-12)


class Twice(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def by_columns(module: Any) -> None:
    module.weight = nn.Parameter(module.weight.data.t().contiguous().t())


def masked(module: Any) -> None:
    """The weight as pruning leaves it: a tensor, made from a parameter of another name."""
    weight = module._parameters.pop("weight")
    module.register_parameter("whole", weight)
    module.weight = weight * 0.5


def own_forward(module: nn.Module) -> None:
    before = module.forward
    module.forward = lambda x: 2 * before(x)


CHANGES: dict[str, Callable[[Any], object]] = {
    "forward hook": lambda m: m.register_forward_hook(lambda m, args, out: 2 * out),
    "pre-hook": lambda m: m.register_forward_pre_hook(lambda m, args: (2 * args[0] + 1,)),
    "backward hook": lambda m: m.register_full_backward_hook(lambda m, *grads: None),
    "backward pre-hook": lambda m: m.register_full_backward_pre_hook(lambda m, grad: None),
    "own forward": own_forward,
    "frozen": lambda m: m.requires_grad_(False),
    "hook at a weight": lambda m: next(m.parameters()).register_hook(lambda g: 2 * g),
    "hook behind a weight": lambda m: next(m.parameters()).register_post_accumulate_grad_hook(lambda p: None),
}


OF_A_WEIGHT = ("frozen", "hook at a weight", "hook behind a weight")  # GELU has none


@pytest.mark.parametrize(
    ("how", "which"),
    [(h, w) for h in CHANGES for w in ("", "norm", "linear1", "act", "linear2") if w != "act" or h not in OF_A_WEIGHT],
)
def test_a_changed_branch_has_no_short_way(how, which):
    made = branch()
    module = getattr(made, which) if which else made
    assert local_branch(made, torch.randn(7, 6).double()) is not None
    CHANGES[how](module)
    assert local_branch(made, torch.randn(7, 6).double()) is None


@pytest.mark.parametrize("how", [by_columns, masked])
@pytest.mark.parametrize("which", ["linear1", "linear2"])
def test_nor_with_a_weight_that_lies_otherwise_or_is_no_parameter(which, how):
    made = branch()
    how(getattr(made, which))
    assert local_branch(made, torch.randn(7, 6).double()) is None


@pytest.mark.parametrize("kind", [nn.Linear, nn.LayerNorm, type(branch())])
def test_nor_where_a_class_was_changed(kind, monkeypatch):
    made = branch()
    before = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, x: 2 * before(self, x))
    assert local_branch(made, torch.randn(7, 6).double()) is None


def test_nor_has_one_with_a_global_hook():
    made, h = branch(), torch.randn(7, 6).double()
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: None)
    try:
        assert local_branch(made, h) is None
    finally:
        handle.remove()
    assert local_branch(made, h) is not None


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("norm", nn.LayerNorm(6, elementwise_affine=False)),
        ("norm", nn.LayerNorm(6, bias=False)),
        ("linear1", nn.Linear(6, 6, bias=False)),
        ("linear2", nn.Sequential(nn.Linear(6, 6))),
        ("linear1", nn.utils.parametrize.register_parametrization(nn.Linear(6, 6), "weight", Twice())),
        ("act", nn.ReLU()),
        ("act", nn.GELU(approximate="tanh")),
    ],
)
def test_nor_with_other_modules_in_it(name, other):
    made = branch().float()
    setattr(made, name, other)
    assert local_branch(made, torch.randn(7, 6)) is None
    assert made(torch.randn(7, 6)).shape == (7, 6)


def stage(*before: nn.Module) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(*before, nn.Linear(6, 4)).double()


@pytest.mark.parametrize("before", [(), (nn.ReLU(),), (nn.Tanh(), nn.Dropout(0.5))])
def test_a_linear_map_behind_modules_without_parameters_is_that_of_the_modules(before):
    pulled(stage(*before), torch.randn(7, 6).double(), torch.randn(7, 4).double())


def hooked(module: nn.Module) -> nn.Module:
    module.register_full_backward_hook(lambda m, *grads: None)
    return module


@pytest.mark.parametrize(
    "block",
    [
        nn.Sequential(),
        nn.Linear(6, 6),
        nn.Sequential(nn.Linear(6, 6), nn.ReLU()),
        nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6)),
        nn.Sequential(nn.Sequential(nn.Linear(6, 6), nn.ReLU()), nn.Linear(6, 6)),
        nn.Sequential(nn.ReLU(), nn.Linear(6, 6, bias=False)),
        nn.Sequential(nn.ReLU(), nn.Linear(6, 6).requires_grad_(False)),
        nn.Sequential(hooked(nn.ReLU()), nn.Linear(6, 6)),
        hooked(nn.Sequential(nn.ReLU(), nn.Linear(6, 6))),
    ],
    ids=str,
)
def test_other_sequences_are_left_to_autograd(block):
    assert local_branch(block, torch.randn(7, 6)) is None


@pytest.mark.parametrize("block", [branch().float(), nn.Sequential(nn.ReLU(), nn.Linear(6, 6))])
def test_so_are_tokens(block):
    assert local_branch(block, torch.randn(7, 3, 6)) is None
