"""`certify`: a locality certificate for whatever makes one update of a network."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.credit.base import CreditRule
from creditscope.data import Dataset
from creditscope.data.dataset import eval_batches, normalise
from creditscope.errors import CreditscopeError, with_article
from creditscope.measure import locality
from creditscope.measure.certificate import (
    BACKPROPAGATION,
    EXACT,
    LABELS_ALONE,
    LATER,
    LOGITS_ALONE,
    NO,
    NOT_APPLICABLE,
    NOTHING,
    OUTPUT_ERROR,
    SIGNS,
    TRANSPORT,
    UNDETERMINED,
    YES,
    Answer,
    Certificate,
    label_of,
)
from creditscope.measure.locality import (
    EMBEDDING,
    HIGHEST_FLOOR,
    READOUT,
    Changes,
    Exact,
    Experiment,
    LossFn,
    Transport,
    Update,
)
from creditscope.measure.null_space import Products, null_space
from creditscope.stream.batches import LABEL_KEYS, call_model, map_samples, split_batch
from creditscope.stream.blocks import resolve_blocks
from creditscope.stream.eager import original
from creditscope.stream.find import verified_stream
from creditscope.stream.interface import InterfaceStream, has_interface
from creditscope.stream.untouched import generators_kept, untouched
from creditscope.training.build import build_stream
from creditscope.training.bundle import Bundle
from creditscope.training.objective import Objective, freeze_first

Optimizer = torch.optim.Optimizer
POWER = 1e-6
"""A perturbation that changes the exact gradient by less is no test."""
LOW_RANK = ((4, 4), (2, 4), (2, 2), (2, 1), (1, 1), (1, 0))
"""(images, pixels that differ from a constant), the richest first: tried where the batch leaves no null space."""


def certify(
    update: CreditRule | Callable[..., Any],
    model: nn.Module,
    batch: Any,
    blocks: Any = None,
    *,
    optimizer: Optimizer | Callable[[nn.Module], Optimizer] | None = None,
    loss_fn: LossFn | None = None,
    objective: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Certificate:
    """What does the update of each block depend on? The update is a black box, called again and again.

    update: a callable update(model, batch) that leaves gradients in .grad; with `optimizer`, a callable
        step(model, batch, optimizer) that changes the weights; or a CreditRule, which trains by the local objective.
        What it closes over is restored before each call, and so are all random numbers.
    batch: (x, y), or a mapping with an entry "labels". Few samples are better: 16 at width 64.
    blocks: as for `diagnose`.
    optimizer: an optimiser, or a function of the model that makes one. Every call gets a fresh one, without weight decay.
    loss_fn: (logits, y) -> loss per sample, for the comparison with backpropagation; cross-entropy if None.
    objective: of a CreditRule: credit_norm, credit_site, penalty, first_trained, grad_clip, clip_over.

    The test runs in float64 where the model and the update allow it. Model, gradients, modes, hooks and every RNG are left
    as found, also after an error.
    """
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
    model = original(model)
    if not isinstance(batch, Mapping | tuple | list) or (isinstance(batch, list) and len(batch) != 2):
        raise CreditscopeError(
            f"batch is {with_article(batch)}; certify takes one batch, (x, y) or a mapping with labels: for example the first of "
            "your batches"
        )
    inputs, y = split_batch(batch)
    if y.dim() == 0 or not len(y):
        raise CreditscopeError("the batch has no samples; give one label per sample")
    rebuild = _rebuild(batch)
    named = _blocks(model, inputs, len(y), blocks)
    call = _callable(update, model, inputs, optimizer, objective)
    roots = [update, *([optimizer] if optimizer is not None else [])]
    notes: list[str] = []
    if optimizer is not None:
        notes.append("updates are weight changes of one step by a fresh optimiser, its weight decay set to 0")
    settings: dict[str, Any] = {"loss_fn": loss_fn, "seed": seed, "roots": roots, "by_step": optimizer is not None}

    def made(inputs: Any, y: Tensor) -> Experiment:
        return _checked(lambda: Experiment(call, model, inputs, y, named, rebuild, **settings))

    dtype = _dtype(model, [call, *roots], inputs, lambda inputs: made(inputs, y), notes)
    with locality.placed(model, dtype, [call, *roots]):
        inputs = locality.as_dtype(inputs, dtype)
        experiment = made(*_few(model, inputs, y, named, notes))

        def of(n: int) -> Experiment:
            return made(map_samples(inputs, len(y), lambda t: t[:n]), y[:n])

        halves = of(2) if len(experiment.y) < 2 <= len(y) else experiment
        try:
            return _certificate(experiment, halves, lambda: of(1), notes)
        except CreditscopeError:
            raise
        except Exception as error:
            raise _raised(error) from error


def certify_bundle(bundle: Bundle, dataset: Dataset, samples: int = 16) -> Certificate:
    """The certificate of a bundle's network under its own rule and recipe, on its first evaluation samples."""
    spec = bundle.spec
    model = bundle.model(dataset).train()
    stream = build_stream(model, normalise(dataset, dataset.test_x[:3]))
    objective = {
        "credit_norm": spec.credit_norm,
        "credit_site": bundle.rule().credit_site,
        "penalty": spec.penalty,
        "first_trained": freeze_first(stream, spec.train_last),
        "grad_clip": spec.grad_clip,
        "clip_over": spec.clip_over,
    }
    batch = eval_batches(dataset, 1, samples)[0]
    return certify(bundle.rule(device=batch[1].device), model, batch, objective=objective)


# ---- what is given ---------------------------------------------------------------------------------------------


def _rebuild(batch: Any) -> Callable[[Any, Tensor], Any]:
    """(inputs, y) -> a batch of the user's form."""
    if isinstance(batch, Mapping):
        key = next(k for k in LABEL_KEYS if k in batch)
        return lambda inputs, y: {**inputs, key: y}
    return lambda inputs, y: (inputs, y)


def _blocks(model: nn.Module, inputs: Any, n: int, blocks: Any) -> list[tuple[str, nn.Module]]:
    if blocks is not None:
        return resolve_blocks(model, blocks)
    if has_interface(model):
        return resolve_blocks(model, list(model.blocks))  # type: ignore[arg-type]
    with untouched(model):
        return resolve_blocks(model, list(dict.fromkeys(verified_stream(model, inputs, n).names)))


def _callable(
    update: Any, model: nn.Module, inputs: Any, optimizer: Any, objective: Mapping[str, Any] | None
) -> Update:
    if isinstance(update, CreditRule):
        if optimizer is not None:
            raise CreditscopeError(
                "a CreditRule leaves gradients; give optimizer= only with a step(model, batch, optimizer)"
            )
        return _by_rule(update, model, inputs, dict(objective or {}))
    if objective is not None:
        raise CreditscopeError("objective= belongs to a CreditRule; a callable has its own")
    if not callable(update):
        raise CreditscopeError(
            f"update is {with_article(update)}; give a CreditRule or a callable update(model, batch)"
        )
    wanted = 2 if optimizer is None else 3
    try:
        inspect.signature(update).bind(*range(wanted))
    except TypeError:
        form = "update(model, batch)" if optimizer is None else "step(model, batch, optimizer)"
        raise CreditscopeError(f"the update does not take {wanted} arguments; give a callable {form}") from None
    except ValueError:  # built in: its signature is not known
        pass
    if optimizer is None:
        return update
    if not isinstance(optimizer, Optimizer) and not callable(optimizer):
        raise CreditscopeError(
            f"optimizer is {with_article(optimizer)}; give an optimiser or a function of the model that makes one"
        )
    return lambda model, batch: update(model, batch, _fresh(optimizer, model))


def _fresh(optimizer: Any, model: nn.Module) -> Optimizer:
    """An optimiser without history and without weight decay."""
    if isinstance(optimizer, Optimizer):
        groups = [dict(group) for group in optimizer.param_groups]
        made: Optimizer = type(optimizer)(groups, **optimizer.defaults)
    else:
        made = optimizer(model)
    for group in made.param_groups:
        if "weight_decay" in group:
            group["weight_decay"] = 0.0
    return made


def _by_rule(rule: CreditRule, model: nn.Module, inputs: Any, settings: dict[str, Any]) -> Update:
    """One batch by the local objective of training."""
    if not has_interface(model) or not isinstance(inputs, Tensor):
        raise CreditscopeError(
            "a CreditRule trains models with the interface embed / blocks / readout; for others give update(model, batch)"
        )
    with untouched(model):
        stream = InterfaceStream(model, inputs[:3])
    rule.attach(stream)
    made = Objective(
        stream,
        rule,
        settings.pop("credit_norm", None),
        settings.pop("credit_site", rule.credit_site or rule.site or "input"),
        settings.pop("penalty", 0.0),
        settings.pop("first_trained", rule.first_trained),
        grad_clip=settings.pop("grad_clip", None),
        clip_over=settings.pop("clip_over", None),
    )
    if settings:
        raise CreditscopeError(f"objective has no {next(iter(settings))!r}; see `certify`")
    return lambda _, batch: made.backward(*batch)


def _dtype(
    model: nn.Module, roots: Sequence[Any], inputs: Any, made: Callable[[Any], Experiment], notes: list[str]
) -> torch.dtype | None:
    """float64, or None (as the model is) where another tensor shares a weight's memory or the update does not run in float64."""
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if own == torch.float64:
        return None
    shared = locality.aliased(model)
    if shared:
        notes.append(
            f"in {_spelled(own)}: another tensor shares the memory of {shared}, which a float64 copy would not"
        )
        return None
    try:
        with locality.placed(model, torch.float64, roots):
            made(locality.as_dtype(inputs, torch.float64))
    except CreditscopeError as error:
        if not isinstance(error.__cause__, RuntimeError | TypeError):  # what torch raises where dtypes do not fit
            raise
        notes.append(f"in {_spelled(own)}: in float64 {error}; {SHARPER}")
        return None
    return torch.float64


SHARPER = "let its constants follow the dtype of what they meet (B.to(h)), and the test is sharper"


def _spelled(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _checked(made: Callable[[], Experiment]) -> Experiment:
    """What the update gives on the batch, where it can be tested by it."""
    try:
        experiment = made()
    except CreditscopeError:
        raise
    except Exception as error:  # it is the user's code: anything may come, and it is told as it is
        raise _raised(error) from error
    if not any(name in experiment.trained for name in experiment.names):
        raise CreditscopeError(
            "the update left no gradient in any block; it must train the parameters of the model that it is given"
        )
    if not all(bool(u.isfinite().all()) for u in experiment.base.values()):
        raise CreditscopeError("the update is not finite on this batch; give a network that has not diverged")
    return experiment


def _raised(error: Exception) -> CreditscopeError:
    return CreditscopeError(f"the update raised {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}")


def _few(
    model: nn.Module, inputs: Any, y: Tensor, named: Sequence[tuple[str, nn.Module]], notes: list[str]
) -> tuple[Any, Tensor]:
    """As many of the samples as leave a null space to every weight behind the first block; else images of low rank."""
    tight = _tightest(model, inputs, y, named)
    if tight is None:
        return inputs, y
    if 0 < tight < len(y):
        taken = map_samples(inputs, len(y), lambda t: t[:tight])
        if _tightest(model, taken, y[:tight], named) is None:
            first = "the first" if tight == 1 else f"the first {tight}"
            notes.append(f"tested on {first} of {len(y)} samples: with more, some weight has no null space")
            return taken, y[:tight]
    if isinstance(inputs, Tensor) and inputs.is_floating_point() and inputs.dim() == 4:
        for n, pixels in LOW_RANK:
            plain = inputs[:n].mean((2, 3), keepdim=True).expand_as(inputs[:n]).clone()
            places = torch.linspace(0, inputs[0, 0].numel() - 1, pixels + 2)[1:-1].long()
            plain.flatten(2)[:, :, places] = inputs[:n].flatten(2)[:, :, places]
            if _tightest(model, plain, y[:n], named) is None:
                notes.append(f"on {len(plain)} constant images with {pixels} other pixels: others leave no null space")
                return plain, y[:n]
    return inputs, y


def _tightest(model: nn.Module, inputs: Any, y: Tensor, named: Sequence[tuple[str, nn.Module]]) -> int | None:
    """The largest batch that leaves a null space everywhere (0: none does); None: this one does."""
    ended = 0
    behind: set[str] = set()
    parameters = dict(model.named_parameters())
    products = Products(parameters)

    def end(*_: Any) -> None:
        nonlocal ended
        if not ended:
            behind.update(products.uses)
        ended += 1

    with locality.hooked([(named[0][1], end)]), generators_kept(model), torch.enable_grad(), products:
        call_model(model, inputs)
    inside = {id(p) for _, block in named for p in block.parameters()}
    fitting: list[int] = []
    for name, use in products.uses.items():
        if name in behind and id(parameters[name]) not in inside:
            continue  # the embedding: no update lies in front of it
        tolerance = 1e-10 if parameters[name].dtype == torch.float64 else 1e-5
        space = null_space(parameters[name], use, len(y), tolerance)
        if space.refused and use.inputs and not use.refused:
            fitting.append(space.fitting or 0)
    return min(fitting) if fitting else None


# ---- questions -------------------------------------------------------------------------------------------------


def _certificate(e: Experiment, halves: Experiment, one: Callable[[], Experiment], notes: list[str]) -> Certificate:
    exact, how = _exact(e, notes)
    if how:
        notes.append(how)
    found = e.transport(exact)
    floor = e.floor(max(found.moved, torch.finfo(e.dtype).eps))
    answers = _transport_answers(e, found, floor)
    _tell_forward_runs_apart(e, one, answers)
    answers["teaching"] = _teaching(e, floor)
    answers["later_states"] = _later(e, floor, answers["teaching"].answer)
    answers["samples"] = _samples(halves)
    gradient = exact(None) if exact is not None else None
    distances = _distances(e, gradient)
    equal, head = _equal(e, gradient, distances, how), _head(e, distances, how)
    answers["backpropagation"], answers["head"] = equal, head
    if not e.loss_given and head.answer == NO:  # the loss is a guess that the update does not bear out
        unknown = (
            "the update of the readout is not the gradient of cross-entropy; give loss_fn= if you train by another loss"
        )
        answers["head"] = replace(head, answer=UNDETERMINED, detail=unknown)
        if equal.change is not None:
            answers["backpropagation"] = replace(equal, answer=UNDETERMINED, detail=unknown)
    answers["feedback"] = _feedback(e, floor, answers["between"].answer)
    scale = next((s for s in found.scales if s != 1.0), None)
    if scale is not None:
        answers["common_scale"] = Answer(
            "common scale", YES, abs(scale - 1), None, f"all updates by the same factor {scale:.4g}: not transport"
        )
    if missing := [n for n in e.names if n not in e.trained]:
        notes.append(f"the update does not train {missing[0]}{_more(missing)}")
    if idle := sorted(n for n in e.idle if n in e.base):
        take = "take" if len(idle) > 1 else "takes"
        notes.append(f"{idle[0]}{_more(idle)} {take} no part in the forward pass of the model: not tested")
    gains = [n for n, p in e.parameters.items() if p.dim() < 2 and n in e.base and "norm" in n.lower()]
    if gains:
        notes.append("gains and biases have no null space: whether they are transported is not tested")
    label, reason = _label(e, found, floor, answers)
    return Certificate(
        label,
        reason,
        _matrix(e, found),
        answers,
        tuple(e.names),
        {
            "dtype": _spelled(e.dtype),
            "samples": len(e.y),
            "mode": "train" if e.model.training else "eval",
            "calls": e.calls + (halves.calls if halves is not e else 0),
            "forward_change": found.moved,
            "distance_to_backpropagation": distances,
            "power": {k: dict(v) for k, v in found.power.items()},
        },
        tuple(notes),
    )


def _exact(e: Experiment, notes: list[str]) -> tuple[Exact | None, str]:
    """The exact gradient, as `exact_of`. Token labels without a given loss: of the next-token loss, where the readout's update is
    its gradient and not that of the labels as given."""
    exact, how = locality.exact_of(e)
    if e.loss_given or exact is None or e.y.is_floating_point() or e.y.dim() != 2 or e.logits.dim() != 3:
        return exact, how

    def explained(gradient: Exact | None) -> bool:
        return gradient is not None and _head(e, _distances(e, gradient(None)), "").answer == YES

    if not explained(exact):
        e.loss_fn = locality.next_token
        shifted, why = locality.exact_of(e)
        if explained(shifted):
            notes.append("the readout is trained to give the next token: token t is scored against label t + 1")
            return shifted, why
        e.loss_fn = locality.cross_entropy
    return exact, how


def _matrix(e: Experiment, found: Transport) -> tuple[tuple[float | None, ...], ...]:
    return tuple(
        tuple(found.inside.get(k) if k == part else found.rows.get(k, {}).get(part) for part in e.names)
        for k in e.names
    )


def _in_front(e: Experiment, part: str) -> list[str]:
    order = [EMBEDDING, *e.names, READOUT]
    return [p for p in order[: order.index(part)] if p in e.trained]


Cells = dict[tuple[str, str], float]


def _cells(e: Experiment, rows: Mapping[str, Mapping[str, float]], parts: Sequence[str]) -> Cells:
    return {(k, p): rows[k][p] for k in parts if k in rows for p in _in_front(e, k) if p in rows[k]}


def _more(found: Collection[Any]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def _answered(question: str, e: Experiment, cells: Cells, floor: float, untested: str) -> Answer:
    """Yes, no or undetermined, with the largest change, and where or why."""
    hit = {cell: v for cell, v in cells.items() if e.depends(v, floor)}
    largest = max(cells.values(), default=None)
    if hit:
        k, p = max(hit, key=lambda cell: hit[cell])
        detail = f"{p} from {k}{_more(hit)}" if k != p else f"in {k}{_more(hit)}"
        return Answer(question, YES, largest, floor, detail, e.bound(floor))
    if floor > HIGHEST_FLOOR:
        untested = "the floor is too high: the update answers noise with large changes"
    return Answer(question, UNDETERMINED if untested else NO, largest, floor, untested, e.bound(floor))


def _transport_answers(e: Experiment, found: Transport, floor: float) -> dict[str, Answer]:
    def untested(parts: Sequence[str], power: Cells) -> str:
        for name, why in found.refused.items():
            if set(e.part_of[name]) & set(parts):
                advice = "; give fewer or smaller samples" if why.startswith("inputs of rank") else ""
                return f"no null space in {name}: {why}{advice}"
        weak = [cell for cell, v in power.items() if not v > POWER]
        return f"a change of {weak[0][0]} does not move the exact gradient of {weak[0][1]} either" if weak else ""

    behind = [name for k, name in enumerate(e.names) if _in_front(e, name) and (k > 0 or EMBEDDING in e.trained)]
    cells = _cells(e, found.rows, behind)
    why = untested(behind, _cells(e, found.power, behind)) or ("" if cells else "no weight was perturbed")
    between = _answered("weight transport between blocks", e, cells, floor, why)
    if not behind:
        between = replace(between, answer=NOT_APPLICABLE, change=None, detail="one block")
    inside = {(k, k): v for k, v in found.inside.items()}
    power = {(k, k): v for k, v in found.inside_power.items()}
    within = _answered("weight transport inside a block", e, inside, floor, untested(e.names, power))
    if not inside and not any(n in found.refused for k in e.names for n in e._in(k)):
        within = replace(within, answer=NOT_APPLICABLE, change=None, detail="one weight per block")
    read, read_power = (
        {c: v for c, v in _cells(e, rows, [READOUT]).items() if c[1] in e.names} for rows in (found.rows, found.power)
    )
    why = untested([READOUT], read_power) or ("" if read else "no weight of the readout was perturbed")
    readout = _answered("weight transport through the readout", e, read, floor, why)
    return {"between": between, "inside": within, "readout": readout}


def _tell_forward_runs_apart(e: Experiment, one: Callable[[], Experiment], answers: dict[str, Answer]) -> None:
    """A rule may run later blocks forward at states of its own (noisy ones, relaxed ones): it then depends on their weights,
    and transports none. Changes that these runs cannot see either decide."""
    if not any(answers[k].answer == YES for k in ("between", "readout")):
        return
    rows = e.forward_runs()
    if rows == {}:
        return
    if rows is None and len(e.y) > 1:
        e = one()
        rows = e.forward_runs()
    for key, parts in (("between", e.names), ("readout", [READOUT])):
        before = answers[key]
        if before.answer != YES:
            continue
        runs = f"the update runs the network forward at states of its own, which see a change of {before.change:.2g}"
        if rows is None:
            detail = f"{runs}; they leave no null space, or use other weights"
            answers[key] = replace(before, answer=UNDETERMINED, detail=detail)
            continue
        cells = {c: v for c, v in _cells(e, rows, parts).items() if key == "between" or c[1] in e.names}
        assert before.floor is not None
        found = _answered(before.question, e, cells, before.floor, "")
        answers[key] = found if found.answer == YES else replace(found, detail=runs)


def _teaching(e: Experiment, floor: float) -> Answer:
    labels = max(e.taught(e.run(y=y)) for y in e.other_labels())
    moved = e.moved_logits()
    if moved is None:
        return Answer(
            "learns from", UNDETERMINED, labels, floor, "no readout behind the blocks was seen", e.bound(floor)
        )
    logits = e.taught(moved)
    by_labels, by_logits = e.depends(labels, floor), e.depends(logits, floor)
    what = {
        (True, True): OUTPUT_ERROR,
        (True, False): LABELS_ALONE,
        (False, True): LOGITS_ALONE,
        (False, False): NOTHING,
    }[by_labels, by_logits]
    detail = f"other labels {labels:.2g}, moved logits {logits:.2g}"
    return Answer("learns from", what, max(labels, logits), floor, detail, e.bound(floor))


def _later(e: Experiment, floor: float, teaching: str) -> Answer:
    question = "later states, at the recorded logits"
    if len(e.names) < 2:
        return Answer(question, NOT_APPLICABLE, None, None, "one block")
    rows, still, why = e.later_states(teaching not in (LABELS_ALONE, NOTHING))
    cells = {(k, p): v for k, row in rows.items() for p, v in row.items()}
    return _answered(question, e, cells, max(floor, still), why)


def _samples(e: Experiment) -> Answer:
    question = "the update of a batch is the mean over its samples"
    found = e.of_halves()
    if found is None:
        return Answer(question, UNDETERMINED, None, None, "one sample; give two or more")
    change, floor, factor = found
    if floor > HIGHEST_FLOOR:
        return Answer(question, UNDETERMINED, change, floor, "the order of the samples changes the update as well")
    sums = (
        ""
        if abs(factor - 1) < 0.01
        else "a sum over samples"
        if abs(factor - 2) < 0.02
        else f"by a factor of {factor:.3g}"
    )
    return Answer(question, NO if e.depends(change, floor) else YES, change, floor, sums, e.bound(floor))


def _distances(e: Experiment, exact: Mapping[str, Tensor] | None) -> dict[str, dict[str, float]]:
    """Cosine and relative difference to the exact gradient, for each parameter that the update changes."""
    if exact is None:
        return {}
    exact = {n: g for n, g in exact.items() if n in e.base}
    dot = sum(float((e.base[n] * g).sum()) for n, g in exact.items())
    size = sum(float(g.square().sum()) for g in exact.values())
    factor = dot / size if size > 0 and dot > 0 else 1.0  # a loss by sum and one by mean are the same rule
    found = {}
    for name, u in e.base.items():
        if name not in exact:
            continue
        g = exact[name]
        norms = float(u.norm()) * float(g.norm())
        found[name] = {
            "cosine": float((u * g).sum()) / norms if norms > 0 else math.nan,
            "difference": float((u - factor * g).norm()) / max(factor * float(g.norm()), 1e-300),
            "factor": factor,
        }
    return found


def _largest(e: Experiment, distances: Mapping[str, Mapping[str, float]], parts: Sequence[str]) -> float:
    """Relative difference of a part as one vector, the largest over parts (a parameter may have next to no gradient)."""
    worst = 0.0
    for part in parts:
        names = [n for n in e._in(part) if n in distances]
        size = [float(e.base[n].norm()) for n in names]
        if not names or not any(size):
            continue
        far = [distances[n]["difference"] * float(e.base[n].norm()) for n in names]
        worst = max(worst, math.hypot(*far) / math.hypot(*size))
    return worst


def _equal(e: Experiment, exact: Changes | None, distances: Mapping[str, Mapping[str, float]], why: str) -> Answer:
    question = "equal to backpropagation"
    if exact is None:
        return Answer(question, UNDETERMINED, None, None, why)
    left = [n for n in e.names if n not in e.trained and e.size(exact, n) > e.equal * e.size(exact, *e.names)]
    if left:
        return Answer(question, NO, None, None, f"{left[0]}{_more(left)} gets no update, and its gradient is not zero")
    parts = [p for p in (EMBEDDING, *e.names) if p in e.trained]
    far = _largest(e, distances, parts)
    cosines = [v["cosine"] for n, v in distances.items() if set(e.part_of[n]) & set(parts)]
    known = [c for c in cosines if c == c]
    detail = f"cosine per parameter {min(known):.2g} to {max(known):.2g}" if known else ""
    if far <= e.equal:
        return Answer(question, EXACT, far, e.equal, detail, e.equal)
    return Answer(question, NO, far, e.equal, detail, e.equal)


def _head(e: Experiment, distances: Mapping[str, Mapping[str, float]], why: str) -> Answer:
    question = "the readout is trained by the exact gradient"
    names = [n for n in e._in(READOUT) if n in e.base]
    if not names:
        return Answer(question, NOT_APPLICABLE, None, None, "the update does not train it")
    if not distances:
        return Answer(question, UNDETERMINED, None, None, why)
    worst = max((1 - distances[n]["cosine"] for n in names if n in distances), default=0.0)
    return Answer(question, YES if worst <= e.equal else NO, worst, e.equal, "the largest over its parameters", e.equal)


def _feedback(e: Experiment, floor: float, between: str) -> Answer:
    second, drawn = e.over_time()
    question, bound = "feedback over time", e.bound(floor)
    learned, anew = e.depends(second, floor), e.depends(drawn, floor)
    keeps, draws = e.forward_varies() if learned or anew else (False, False)
    for seen, forward, answer, detail, instead in (
        (
            learned,
            keeps,
            "learned",
            "a second update, from what one at other weights has left, differs",
            "keeps a state",
        ),
        (anew, draws, "drawn anew", "the update changes with the random numbers", "draws random numbers"),
    ):
        if seen and not forward:
            return Answer(question, answer, second if answer == "learned" else drawn, floor, detail, bound)
        if seen and between != YES:
            detail = f"the forward pass of the model {instead} as well; try it in mode eval"
            return Answer(question, UNDETERMINED, second if answer == "learned" else drawn, floor, detail, bound)
    if between == YES:
        return Answer(question, "tied to the forward weights", second, floor, "", bound)
    return Answer(question, "fixed", second, floor, "", bound)


def _label(e: Experiment, found: Transport, floor: float, answers: Mapping[str, Answer]) -> tuple[str, str]:
    """The label and the numbers behind it."""
    between, readout, inside, teaching, later, equal = (
        answers[k] for k in ("between", "readout", "inside", "teaching", "later_states", "backpropagation")
    )
    hits = [c for c, v in _cells(e, found.rows, e.names).items() if e.depends(v, floor)]
    kept = [found.signs.get(k, {}).get(p) for k, p in hits]
    signs_decide = all(v is not None and not e.depends(v, floor) for v in kept)
    label = label_of({name: a.answer for name, a in answers.items()}, signs_decide)
    scope = f"between blocks {between.answer}, inside a block {inside.answer}, through the readout {readout.answer}"
    if label == BACKPROPAGATION:
        return label, f"equal to the gradient to {equal.change:.1g}; {scope}"
    if label in (SIGNS, TRANSPORT):
        number = f"change {between.change:.2g}, floor {floor:.1g}; {between.detail}; {scope}"
        return label, number if label == TRANSPORT else f"nothing changes while the signs of the weights stay; {number}"
    if label == UNDETERMINED:
        unknown = next(a for a in (between, readout, teaching, later) if a.answer == UNDETERMINED)
        return label, f"because {unknown.detail if unknown is between else f'{unknown.question}: {unknown.detail}'}"
    number = f"largest change {0.0 if between.change is None else between.change:.1g}, floor {floor:.1g}; {scope}"
    if equal.answer == EXACT:
        number += "; equal to backpropagation on this batch although it does not read the weights"
    number = f"learns from {teaching.answer}; {number}"
    return label, f"{later.detail}: change {later.change:.2g}; {number}" if label == LATER else number
