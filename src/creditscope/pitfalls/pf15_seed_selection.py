"""PF15: the seeds that are reported were chosen by their result."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from creditscope.pitfalls.base import Answer, Evidence, Numbers, Spot, clear, found, unknown
from creditscope.pitfalls.source import Scope, Source, last_name, method, number, words

SEED = {"seed", "seeds"}
RESULT = {
    "acc", "accs", "accuracy", "accuracies", "score", "scores", "result", "results", "loss", "losses", "err", "error",
    "errors", "gamma", "gammas", "margin", "margins",
}  # fmt: skip
COMPARED = (
    "dataset", "arch", "width", "depth", "epochs", "schedule_epochs", "batch_size", "lr", "targets", "train_last",
)  # fmt: skip
"""Runs that agree in these stand in one table; others may have other seeds."""
PICKED = {"best", "good", "top", "selected", "chosen", "picked", "lucky"}
DROPPED = {"bad", "excluded", "exclude", "dropped", "unlucky", "outlier", "outliers"}
AVERAGES = {"mean", "fmean", "std", "stdev", "pstdev", "median", "var", "variance", "average", "sem"}
CHOOSING = {"max", "min", "sorted", "argmax", "argmin", "argsort", "topk", "nlargest", "nsmallest"}
EXTREMES = {"max": "max", "amax": "max", "nanmax": "max", "min": "min", "amin": "min", "nanmin": "min"}
N_SEEDS, KEPT = 20, 3


def accuracies() -> list[float]:
    """Test accuracy of random features with a least-squares readout, one per seed."""
    import torch
    import torch.nn.functional as F

    from creditscope.pitfalls.tiny import CLASSES, N_IN, generator, make_task, randn

    task = make_task(15)
    x, y = task.x[:64], task.y[:64]
    result = []
    for seed in range(N_SEEDS):
        features = randn(N_IN, 24, rng=generator(seed)) / N_IN**0.5
        z, test_z = torch.tanh(x @ features), torch.tanh(task.test_x @ features)
        readout = torch.linalg.lstsq(z, F.one_hot(y, CLASSES).double()).solution
        result.append(float(((test_z @ readout).argmax(1) == task.test_y).double().mean()))
    return result


def reproduce() -> Numbers:
    accs = accuracies()
    kept = sorted(accs)[-KEPT:]  # creditscope: ignore[PF15]
    wrong, right = sum(kept) / KEPT, sum(accs) / N_SEEDS
    return {"wrong": wrong, "right": right, "kept": KEPT, "seeds": N_SEEDS, "gained": 100 * (wrong - right)}


def tensors(reported: Iterable[int], available: Iterable[int]) -> str | None:
    """Seeds of a claim against the seeds that were run."""
    missing = sorted(set(available) - set(reported))
    return f"seeds {', '.join(map(str, missing))} were run and are not reported" if missing else None


def code(source: Source) -> Iterator[Spot]:
    if not any("seed" in line.lower() for line in source.lines):
        return
    for scope in source.scopes:
        over_seeds = _collected_over_seeds(source, scope)
        calls = [(last_name(c), [*c.args[:1], *filter(None, [method(c)[1]])], c) for c in source.calls_in[scope]]
        averaged = {ast.dump(x) for name, given, _ in calls if name in AVERAGES for x in given}
        extremes = {(EXTREMES[name], ast.dump(c.args[0])) for name, _, c in calls if name in EXTREMES and c.args}
        for node in source.within[scope]:
            match node:
                case ast.Assign() | ast.AnnAssign():
                    yield from _named_choice(source, node)
                case ast.Call(args=[_, *_]) if last_name(node) in EXTREMES:
                    yield from _extreme(source, node, over_seeds, averaged, extremes)
                case ast.Call(args=[_, results, *_]) if last_name(node) in ("nlargest", "nsmallest"):
                    if _per_seed(results, over_seeds):
                        yield source.spot(node, "the best results over seeds are kept")
                case ast.Subscript() if _sorted_cut(node, over_seeds):
                    yield source.spot(node, "results over seeds are sorted and cut: the rest of the seeds is left out")
                case ast.For():
                    yield from _skipped_seeds(source, node)


def _named_choice(source: Source, node: ast.Assign | ast.AnnAssign) -> Iterator[Spot]:
    """best_seeds = [3, 7, 11], best_seed = max(...)."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        name_words = words(last_name(target)) if isinstance(target, ast.Name | ast.Attribute) else set()
        if not name_words & SEED or not name_words & (PICKED | DROPPED) or node.value is None:
            continue
        chosen = isinstance(node.value, ast.Call | ast.Subscript | ast.ListComp) and any(
            last_name(n) in CHOOSING for n in ast.walk(node.value) if isinstance(n, ast.Call)
        )
        if chosen or _literal_numbers(node.value):
            yield source.spot(node, f"{last_name(target)} picks seeds by their result")


def _literal_numbers(node: ast.expr) -> bool:
    """[3, 7], (3, 7), {3, 7}."""
    items = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []
    return bool(items) and all(number(item) is not None for item in items)


def _collected_over_seeds(source: Source, scope: Scope) -> set[str]:
    """Lists that are filled in a loop over seeds: accs.append(...), accs[seed] = ..., or accs = [... for seed in seeds]."""
    names: set[str] = set()
    for node in source.within[scope]:
        if isinstance(node, ast.For) and _is_seed_loop(node.target, node.iter):
            inner = [n for n in ast.walk(node) if isinstance(n, ast.For | ast.While) and n is not node]
            nested = {id(n) for loop in inner for n in ast.walk(loop)}  # a list per epoch has a loop of its own
            assigned = [t for a in ast.walk(node) if isinstance(a, ast.Assign) for t in a.targets]
            fresh = {t.id for t in assigned if isinstance(t, ast.Name)}
            for part in ast.walk(node):
                if id(part) in nested:
                    continue
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "append":
                    names.add(last_name(part.func.value))
                elif isinstance(part, ast.Assign):
                    names |= {last_name(t.value) for t in part.targets if isinstance(t, ast.Subscript)}
            names -= fresh
    for target, value in source.bindings[scope]:
        first = value.generators[0] if isinstance(value, ast.ListComp | ast.DictComp) else None
        if isinstance(target, ast.Name) and first is not None and _is_seed_loop(first.target, first.iter):
            names.add(target.id)
    return {name for name in names if words(name) & RESULT}


def _is_seed_loop(target: ast.expr, values: ast.expr) -> bool:
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    return bool(words(last_name(first)) & SEED or words(last_name(values)) & SEED)


def _per_seed(node: ast.expr, over_seeds: set[str]) -> bool:
    """Results with one entry per seed: by how they were filled, by name (acc_by_seed), or by a comprehension over seeds."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        if not _is_seed_loop(node.generators[0].target, node.generators[0].iter):
            return False
        plain = isinstance(node.elt, ast.Name) and bool(words(node.elt.id) & SEED)
        return not plain and any(
            words(last_name(n)) & RESULT for n in ast.walk(node.elt) if isinstance(n, ast.Name | ast.Attribute)
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items"):
        return _per_seed(node.func.value, over_seeds)
    if isinstance(node, ast.Call) and last_name(node.func) == "list" and node.args:
        return _per_seed(node.args[0], over_seeds)
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    name = last_name(node)
    name_words = words(name)
    return name in over_seeds or bool(
        name_words & SEED and name_words & RESULT and not name_words & {"epoch", "epochs"}
    )


def _extreme(
    source: Source, call: ast.Call, over_seeds: set[str], averaged: set[str], extremes: set[tuple[str, str]]
) -> Iterator[Spot]:
    """max(accs): a choice, unless the spread (min and max) or the average of the same results is told as well."""
    if (len(call.args) > 1 and last_name(call.func) in ("max", "min")) or not _per_seed(call.args[0], over_seeds):
        return
    key = ast.dump(call.args[0])
    if {("max", key), ("min", key)} <= extremes or key in averaged:
        return
    parent = source.parents.get(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    if any(words(last_name(t)) & {"worst", "range", "spread", "ylim"} for t in targets):
        return
    yield source.spot(call, f"{last_name(call.func)} over seeds: one result is reported in place of all")


def _sorted_cut(node: ast.Subscript, over_seeds: set[str]) -> bool:
    """sorted(accs)[-3:], sorted(accs)[-1]; not the median, nor a slice that trims both ends."""
    match node.value, node.slice:
        case ast.Call(args=[results, *_]) as call, ast.Slice(lower=low, upper=high):
            cut = (low is None) != (high is None)
        case ast.Call(args=[results, *_]) as call, index:
            cut = number(index) is not None
        case _:
            return False
    return cut and last_name(call) == "sorted" and _per_seed(results, over_seeds)


def _skipped_seeds(source: Source, loop: ast.For) -> Iterator[Spot]:
    """for seed in seeds: if seed in (3, 7): continue"""
    if not isinstance(loop.target, ast.Name) or not words(loop.target.id) & SEED:
        return
    for node in loop.body:
        match node:
            case ast.If(
                test=ast.Compare(left=ast.Name(id=name), ops=[ast.In() | ast.Eq(), *_], comparators=[values, *_]),
                body=[*_, ast.Continue()],
            ) if name == loop.target.id and (number(values) is not None or _literal_numbers(values)):
                yield source.spot(node, "seeds are left out by hand")


def audit(evidence: Evidence) -> Answer:
    mine = {evidence.spec.seed} | {n.spec.seed for n in evidence.group}
    others: dict[str, set[int]] = {}
    for n in evidence.neighbours:
        alike = all(getattr(n.spec, f) == getattr(evidence.spec, f) for f in COMPARED)
        if alike and n.spec.label != evidence.spec.label:
            others.setdefault(n.spec.label, set()).add(n.spec.seed)
    for label, seeds in sorted(others.items()):
        if missing := sorted(seeds - mine):
            return found(f"{label} was run with seeds that are missing here: {', '.join(map(str, missing))}")
    if len(mine) == 1:
        return unknown(f"one network (seed {evidence.spec.seed}): whether it was chosen cannot be seen")
    late = f"; {len(evidence.unfinished)} unfinished runs are beside it" if evidence.unfinished else ""
    return clear(f"seeds {', '.join(map(str, sorted(mine)))} are all beside it, as for the other methods{late}")
