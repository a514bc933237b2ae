"""PF10: credit and reference are taken in different modes (train, eval), or both in train mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import NO_COSINE, Answer, Facts, Numbers, Spot, clear, found, from_facts, nn, unknown
from creditscope.pitfalls.source import AUTOGRAD, COSINES, Scope, Source, is_literal, last_name, method, words

MODEL = {"model", "net", "network", "student", "encoder"}
DEPENDS_ON_MODE = ("Dropout", "BatchNorm", "DropPath", "InstanceNorm", "SyncBatchNorm")


def reproduce() -> Numbers:
    import torch
    import torch.nn.functional as F
    from torch import nn

    from creditscope.pitfalls.tiny import cosine, generator, randn

    rng = generator(10)
    norm = nn.BatchNorm1d(32, momentum=0.0).double()  # the running statistics stay as they are
    head = randn(32, 5, rng=rng) / 32**0.5
    # what training has left in the running statistics; the features of the evaluation set differ in size
    running = torch.linspace(0.05, 4.0, 32, dtype=torch.float64)
    norm.running_var = running.clone()
    x = randn(128, 32, rng=rng).requires_grad_()
    y = torch.randint(5, (128,), generator=rng)

    def gradient(train: bool) -> torch.Tensor:
        norm.train(train)
        loss = F.cross_entropy(norm(x) @ head, y, reduction="sum")
        return torch.autograd.grad(loss, x)[0]

    in_eval = gradient(False)
    wrong, right = float(cosine(gradient(True), in_eval).mean()), float(cosine(gradient(False), in_eval).mean())
    return {"wrong": wrong, "right": right}


def tensors(model: nn.Module) -> str | None:
    """Modules that behave differently in train mode and are in it now: call it where gradients are measured."""
    names = [name for name, m in model.named_modules() if m.training and type(m).__name__.startswith(DEPENDS_ON_MODE)]
    if not names:
        return None
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"in train mode, which changes what they compute: {names[0]}{more}; call model.eval()"


def code(source: Source) -> Iterator[Spot]:
    """Only where a function takes gradients and compares them by a cosine: training in train mode is no mistake."""
    evals = [c for c in source.calls if _mode(c) == "eval"]
    for scope in source.functions:
        calls = source.calls_in[scope]
        takes = [c for c in calls if source.is_call(c, AUTOGRAD) or method(c)[0] == "backward"]
        compares = [c for c in calls if _is_cosine(source, c, scope)]
        forwards = [c for c in calls if _is_forward(c)]
        if not takes or not compares or not forwards:
            continue
        modes = [(c.lineno, mode, c) for c in calls if (mode := _mode(c))]
        under = {_mode_at(take.lineno, modes) for take in takes}
        if {"train", "eval"} <= under:
            yield source.spot(takes[-1], "gradients are taken in train mode and in eval mode and then compared")
        elif under == {"train"}:
            at = next(c for _, mode, c in modes if mode == "train")
            yield source.spot(at, f"the gradients compared in line {compares[0].lineno} are taken in train mode")
        elif under == {""} and not evals and _has_mode_dependent(source):
            yield source.spot(
                takes[0], "gradients are compared without eval() although the network has dropout or batch norm"
            )


def _mode(call: ast.Call) -> str:
    """ "train" or "eval" for model.train() and model.eval(); "" for anything else."""
    match method(call)[0], call.args, call.keywords:
        case "eval", [], []:
            return "eval"
        case "train", [] | [ast.Constant(value=True)], []:
            return "train"
        case "train", [flag], [] if is_literal(flag, False):
            return "eval"
    return ""


def _mode_at(line: int, modes: list[tuple[int, str, ast.Call]]) -> str:
    before = [mode for at, mode, _ in modes if at <= line]
    return before[-1] if before else ""


def _is_cosine(source: Source, call: ast.Call, scope: Scope) -> bool:
    named = source.is_call(call, COSINES) or bool({"cos", "cosine", "cossim"} & words(last_name(call.func)))
    return named and any(source.is_gradient(a, scope) for a in call.args[:2])


def _is_forward(call: ast.Call) -> bool:
    """model(x), self.net(x)."""
    named = isinstance(call.func, ast.Name | ast.Attribute) and words(last_name(call.func)) & MODEL
    return bool(named and call.args)


def _has_mode_dependent(source: Source) -> bool:
    return any(last_name(c.func).startswith(DEPENDS_ON_MODE) for c in source.calls)


@from_facts
def audit(facts: Facts) -> Answer:
    mode, arrays = facts.convention.mode, facts.stream.given_as_arrays
    if arrays and mode == "unstated":
        return unknown("credit and reference came as arrays without their mode: state it (mode= of diagnose_arrays)")
    if mode != "eval":
        return found(f"the network was measured in {mode} mode")
    if facts.alignment is None:
        return NO_COSINE
    if arrays:
        return clear("credit and reference came as arrays that are stated to be of eval mode")
    return clear("credit and reference were taken in one pass, in eval mode")
