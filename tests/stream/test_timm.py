"""timm models, built by timm itself and unmodified: blocks are found, facts equal plain autograd, the state stays.

timm imports torchvision, which must match the build of torch. Where it does not load, names that timm only imports are
stood in for: what is measured (the models) is timm's own code.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import nn

from creditscope import find_blocks

from .nets import C, batch, shaken
from .test_any_model import check, cross_entropy


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every `torchvision.*` is a package, and every name in it a class of its own that nothing here uses."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        mine = name.partition(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if mine else None

    def exec_module(self, module: types.ModuleType) -> None:
        def named(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return Named(name, (nn.Module,), {})

        module.__getattr__ = named  # type: ignore[method-assign]


class Named(type):
    """InterpolationMode.BILINEAR, ...: any attribute in capitals is its own name."""

    def __getattr__(cls, name: str) -> str:
        if not name.isupper():
            raise AttributeError(name)
        return name


@pytest.fixture(scope="module")
def timm() -> Iterator[types.ModuleType]:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("extra timm is missing: timm models are NOT tested")
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        _forget()
        stand_in = StandIn()
        sys.meta_path.insert(0, stand_in)
        try:
            yield importlib.import_module("timm")
        finally:
            sys.meta_path.remove(stand_in)
            _forget()  # transformers and lightning must not take it for the real one
    else:
        yield importlib.import_module("timm")


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "timm")]:
        del sys.modules[name]


def vit(timm: Any, **options: Any) -> Any:
    small = {"img_size": 32, "depth": 3, "embed_dim": 24, "num_heads": 2, **options}
    return timm.create_model("vit_tiny_patch16_224", num_classes=C, **small)


def mixer(timm: Any, **options: Any) -> Any:
    """Their entry points fix depth and width; this is the class behind mixer_* and resmlp_*."""
    small = {"img_size": 32, "patch_size": 8, "num_blocks": 3, "embed_dim": 24, **options}
    return timm.models.mlp_mixer.MlpMixer(C, **small)


def resmlp(timm: Any) -> Any:
    parts = timm.models.mlp_mixer
    return mixer(timm, mlp_ratio=4, block_layer=parts.ResBlock, norm_layer=parts.Affine)


STACK = [f"blocks.{k}" for k in range(3)]
STAGES = [f"layer{k}.{j}" for k in range(1, 5) for j in range(2)]
CASES: dict[str, tuple[Callable[[Any], Any], list[str], str]] = {
    "vit, cls token": (vit, STACK, "cls"),
    "vit, pooled": (lambda timm: vit(timm, global_pool="avg", class_token=False), STACK, "mean"),
    "mixer": (mixer, STACK, "mean"),
    "resmlp": (resmlp, STACK, "mean"),
    "resnet10t": (lambda timm: timm.create_model("resnet10t", num_classes=C), STAGES[::2], "flatten"),
    "resnet18": (lambda timm: timm.create_model("resnet18", num_classes=C), STAGES, "flatten"),
}
READ = {"cls": lambda t: t[:, 0], "mean": lambda t: t.mean(1), "flatten": lambda t: t}


@pytest.mark.parametrize("case", CASES)
def test_timm_models_equal_plain_autograd(timm, case):
    make, names, read = CASES[case]
    model = shaken(make(timm), std=0.05)
    x, y = batch((3, 32, 32), n=6)
    assert find_blocks(model, (x, y)) == names
    facts = check(
        model,
        [(x, y)],
        [model.get_submodule(name) for name in names],
        cross_entropy(x, y),
        read=READ[read],
        read_grad=(lambda t: t.sum(1)) if read == "mean" else None,
    )
    assert (facts.stream.kind, facts.stream.read, facts.stream.blocks) == ("residual", read, tuple(names))
