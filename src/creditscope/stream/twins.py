"""`frozen_blocks`: the untrained-blocks twin of a user's own model, to be trained as the null."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from creditscope.errors import CreditscopeError, with_article
from creditscope.stream.blocks import resolve_blocks
from creditscope.stream.eager import copied, original
from creditscope.stream.find import find_blocks
from creditscope.stream.initial_values import sets_weights, start_again, unknown_start
from creditscope.stream.interface import has_interface
from creditscope.stream.untouched import generators_kept

FRESH, KEEP = "fresh", "keep"
INSTEAD = "pass build= (a function that makes a new model)"
OR_KEEP = ", or rest='keep' (see help(frozen_blocks))"


def frozen_blocks(
    model: nn.Module,
    blocks: Any = None,
    *,
    rest: str = FRESH,
    example: Any = None,
    seed: int = 0,
    init: Callable[[nn.Module], None] | None = None,
    build: Callable[[], nn.Module] | None = None,
) -> nn.Module:
    """A re-initialised copy of `model` with frozen blocks: the null (random-blocks baseline), untrained. The rest is trainable.

    Train the copy with the recipe of the audited method and give its accuracy to `diagnose(frozen_baseline_acc=...)`.

    blocks: names, patterns or modules, as for `diagnose`; not needed if the model has the interface or `example` is given.
    rest: "fresh" re-initialises embedding, norms and head too, so that a trained model gives an untrained null; "keep" leaves
        them as they are (for a model that is already new).
    example: a batch as for `diagnose`, to find the blocks (`find_blocks`) and to verify them by running it.
    seed: of the random weights; the same seed gives the same null, whatever `torch.manual_seed` says. Give each null its own.
    init: a function that initialises one block, if its constructor does not show how.
    build: a function without arguments that makes a new model of the same architecture: every part is then initialised as
        the constructor does it. Without it, parts are initialised by their `reset_parameters`, if that is what their
        constructors do; any other part is refused by name. Buffers of your own modules stay as they are.
    The model and the global RNG are left as found.
    """
    return twin_of(model, blocks, rest, example, seed, init, build, OR_KEEP)


def twin_of(
    model: nn.Module,
    blocks: Any,
    rest: str,
    example: Any,
    seed: int,
    init: Callable[[nn.Module], None] | None,
    build: Callable[[], nn.Module] | None,
    advice: str,
) -> nn.Module:
    """`frozen_blocks`; `advice`: what else to do about a part that cannot be started again."""
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
    if rest not in (FRESH, KEEP):
        raise CreditscopeError(f"rest is {rest!r}; give {FRESH!r} (start again) or {KEEP!r} (leave as it is)")
    model = original(model)
    names = _names(model, blocks, example)
    shared = _shared(model)
    _require_blocks_apart(names, shared)
    twin = copied(model)
    devices = {t.device for t in (*twin.parameters(), *twin.buffers())}
    if len(devices) == 1:  # drawn on the CPU, so that a null is the same whatever it is trained on
        twin.cpu()
    inside = [module for name in names for module in twin.get_submodule(name).modules()]
    with generators_kept(model), torch.no_grad():
        _seeded(seed)
        if build is not None:
            state = _built(build, model)
            _take(twin, state, names if rest == KEEP else None)
            _seeded(seed + 1)
            _require_drawn("build", {k: t for k, t in state.items() if _within(k, names)}, _built(build, model))
        else:
            if init is None:
                _require_known_blocks(twin, names, bool(shared))
            if rest == FRESH:
                _require_known_rest(twin, inside, shared, advice)
                start_again(twin, except_for=inside)
            for name in names:
                if init is None:
                    start_again(twin.get_submodule(name))
                else:
                    _called("init", init, twin.get_submodule(name))
            if init is None:
                _as_copies(twin, names)
            else:
                first = twin.get_submodule(names[0])
                again = copied(first)
                _seeded(seed + 1)
                _called("init", init, again)
                _require_drawn("init", first.state_dict(), again.state_dict())
    if len(devices) == 1:
        twin.to(devices.pop())
    for p in twin.parameters():
        p.grad = None
        p.requires_grad_(p.is_floating_point() or p.is_complex())
    for name in names:
        twin.get_submodule(name).requires_grad_(False)
    return twin


def _names(model: nn.Module, blocks: Any, example: Any) -> list[str]:
    if blocks is not None:
        return [name for name, _ in resolve_blocks(model, blocks)]
    if has_interface(model):
        return [f"blocks.{k}" for k in range(len(list(model.blocks)))]  # type: ignore[arg-type]
    if example is None:
        raise CreditscopeError(
            f"{type(model).__name__} has no embed / blocks / readout interface; name its blocks, e.g. blocks='layers.*', or give "
            "example= (a batch) so that they can be found"
        )
    return find_blocks(model, example)


def _shared(model: nn.Module) -> list[list[str]]:
    """The names of every parameter that has several."""
    by_id: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        by_id.setdefault(id(p), []).append(name)
    return [names for names in by_id.values() if len(names) > 1]


def _within(name: str, blocks: Iterable[str]) -> bool:
    return any(name == block or name.startswith(f"{block}.") for block in blocks)


def _require_blocks_apart(blocks: list[str], shared: list[list[str]]) -> None:
    for names in shared:
        inner = next((name for name in names if _within(name, blocks)), None)
        outer = next((name for name in names if not _within(name, blocks)), None)
        if inner and outer:
            raise CreditscopeError(
                f"weight {inner!r} of a block is also {outer!r} outside of the blocks: frozen, it would freeze that too; untie "
                "the two, or name blocks= that do not hold it"
            )


def _require_known_blocks(model: nn.Module, blocks: list[str], tied: bool) -> None:
    """Every part of a block, and no constructor around it that sets weights."""
    reasons = {}
    for block in blocks:
        parts = model.get_submodule(block).modules()
        path = block.split(".")
        above = [model.get_submodule(".".join(path[:k])) for k in range(len(path))]
        found = next(filter(None, (unknown_start(part, tied) for part in parts)), "")
        reasons[block] = found or next(filter(None, (sets_weights(type(part), tied) for part in above)), "")
    unknown = [block for block in blocks if reasons[block]]
    if unknown:
        named = ", ".join(map(repr, unknown[:6])) + (f" and {len(unknown) - 6} more" if len(unknown) > 6 else "")
        raise CreditscopeError(
            f"cannot tell how block{'s' if len(unknown) > 1 else ''} {named} {'are' if len(unknown) > 1 else 'is'} initialised: "
            f"{reasons[unknown[0]]}; {INSTEAD}, or init= (a function that initialises one block)"
        )


def _require_known_rest(model: nn.Module, inside: list[nn.Module], shared: list[list[str]], advice: str) -> None:
    within = set(map(id, inside))
    for name, part in model.named_modules():
        reason = "" if id(part) in within else unknown_start(part, bool(shared))
        if reason:
            where = f"part {name!r}" if name else "the model"
            raise CreditscopeError(f"cannot tell how {where} is initialised: {reason}; {INSTEAD}{advice}")
    params = dict(model.named_parameters(remove_duplicate=False))
    blocks = {id(p) for part in inside for p in part.parameters(recurse=False)}
    for names in shared:
        if id(params[names[0]]) not in blocks:
            raise CreditscopeError(
                f"{names[0]!r} and {names[1]!r} are one weight, and how it starts depends on the order in the constructor; "
                f"{INSTEAD}{advice}"
            )


def _called(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """The user's own function; one line where it raises."""
    try:
        return function(*given)
    except CreditscopeError:
        raise
    except Exception as error:  # it is the user's code: anything may come, and it is told as it is
        why = " ".join(str(error).split())[:160]
        raise CreditscopeError(
            f"{name}() raised {type(error).__name__}: {why}; call it by itself to see where"
        ) from error


def _seeded(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (what a constructor of the user may draw from)


def _require_drawn(name: str, blocks: Mapping[str, torch.Tensor], again: Mapping[str, torch.Tensor]) -> None:
    """Blocks that are the same under another seed would be one null, counted as often as there are seeds."""
    drawn = {k: t for k, t in blocks.items() if t.numel() > 1 and bool((t != t.flatten()[0]).any())}
    if drawn and all(torch.equal(t, again[k]) for k, t in drawn.items()):
        raise CreditscopeError(
            f"{name}() gives the same random blocks under another seed: it sets the seed itself, or draws nothing; let it draw "
            "from torch's generator, which has the seed that you give"
        )


def _built(build: Callable[[], nn.Module], model: nn.Module) -> dict[str, torch.Tensor]:
    new = _called("build", build)
    if not isinstance(new, nn.Module):
        raise CreditscopeError(f"build() returned a {type(new).__name__}; it must return a new model")
    if new is model:
        raise CreditscopeError("build() returned the model itself; it must make a new one")
    state, mine = original(new).state_dict(), model.state_dict()
    shapes = {name: tuple(t.shape) for name, t in mine.items()}
    other = {name: tuple(t.shape) for name, t in state.items()}
    if shapes != other:
        wrong = sorted(k for k in shapes.keys() | other.keys() if shapes.get(k) != other.get(k))[0]
        here, there = (
            f"has {wrong!r} of shape {k[wrong]}" if wrong in k else f"has no {wrong!r}" for k in (shapes, other)
        )
        raise CreditscopeError(
            f"build() makes a model of another architecture: the model {here}, that of build() {there}"
        )
    return state


def _take(twin: nn.Module, state: dict[str, torch.Tensor], blocks: list[str] | None) -> None:
    """Copy the new values in: of the blocks alone, or of everything (None)."""
    for name, t in twin.state_dict().items():
        if blocks is None or _within(name, blocks):
            t.copy_(state[name])


def _as_copies(model: nn.Module, blocks: list[str]) -> None:
    """torch's own encoder and decoder make their layers as copies of one."""
    for name, part in model.named_modules():
        if isinstance(part, nn.TransformerEncoder | nn.TransformerDecoder):
            layers = [layer for k, layer in enumerate(part.layers) if _within(f"{name}.layers.{k}".lstrip("."), blocks)]
            for layer in layers[1:]:
                layer.load_state_dict(layers[0].state_dict())
