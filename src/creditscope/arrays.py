"""`diagnose_arrays`: states, gradients and credit that another framework has computed in, the report of `diagnose` out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from creditscope.credit.base import is_finite
from creditscope.credit.given import GivenCredit
from creditscope.errors import CreditscopeError
from creditscope.measure.facts import FreshB, Nudging, Perturbation, Proof
from creditscope.measure.full import not_measured
from creditscope.measure.functional import CONTROL_SEED, N_SAMPLES, Probe, resolution, with_controls
from creditscope.measure.loss import cross_entropy
from creditscope.measure.nudging import nudging
from creditscope.measure.nulls import SEED as FRESH_SEED
from creditscope.measure.perturbation import perturbation
from creditscope.measure.profile import States, profile_of_states
from creditscope.measure.proof.differences import GRADIENT, GRADIENT_FLOAT32, STEPS, STEPS_FLOAT32, Differences
from creditscope.measure.sweep import Collected, check_labels, facts_from
from creditscope.protocol import DiagnosticThresholds, get_policy
from creditscope.protocol.diagnosis import LEVELS
from creditscope.protocol.report import Claims, DiagnosticReport, make_report
from creditscope.stream.batches import SAMPLES, Batches, Repeats, same_labels
from creditscope.stream.interface import difference
from creditscope.stream.recorded import HALF, ArrayBatch, ArrayBatches, LossFrom, RecordedStream, Reduction

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Claims", "diagnose_arrays"]

CROSS_ENTROPY = "cross-entropy"
SAME_LOSS = 1e-3
"""Largest relative difference between losses that were given and those of `loss_from`, or of logits and labels."""
SAME_LOSS_HALF = 5e-2
"""The same where states, logits or losses are float16 or bfloat16."""


def diagnose_arrays(
    batches: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    reduction: str,
    batch_size: int | str | None = None,
    credit_reduction: str | None = None,
    kind: str = "residual",
    read: str | None = None,
    loss: str = CROSS_ENTROPY,
    dtype: str | None = None,
    mode: str = "unstated",
    checkpoint: str = "final",
    trained_layers: Sequence[int] | None = None,
    exact_layers: Sequence[int] = (),
    loss_from: LossFrom | None = None,
    level: str = "basic",
    fit_batches: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
    test_batches: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
    thresholds: DiagnosticThresholds | None = None,
    **claims: Unpack[Claims],
) -> DiagnosticReport:
    """Judge a network by arrays: numpy, JAX, torch, or anything with `__dlpack__` or `__array__`.

    batches: one mapping, or an iterable of mappings (one per batch), with the entries
        h: [h_0, ..., h_L], each [B, d], [B, T, d] or [B, C, H, W]; L >= 1.
        g: [g_0, ..., g_L], the gradient of the loss by each h_l, of the same shapes.
        a: [a_0, ..., a_L], the method's credit, of the same shapes or as it is read [B, d]; None at a layer that has none.
        logits [B, C] and labels [B] (classes): give accuracy and loss. losses [B]: where the loss is not cross-entropy
        (then `loss` is its name).
        x: the inputs, for the hash of the samples and the profile's readout of the raw input.
        Of these h and g are needed; every batch has the same entries.
    reduction: "sum" where g is the gradient of each sample's own loss (or of their sum), "mean" where it is that of a mean
        over samples; then batch_size is the number of samples in that mean, or "each" for the length of each batch.
    credit_reduction: the same for a, where it differs ("sum" for a credit that was never divided by a batch size, "mean" for one
        that was while g was not).
    kind: "residual" (h_{l+1} = h_l + f_l(h_l)) or "plain". read: for states [B, T, d], what the head reads: "cls", "last",
        "mean" or "flatten". loss, mode, checkpoint: their names, for the record. dtype: of the network, where it is not g's.
    trained_layers: layers whose credit trains something; None: every layer that has one. exact_layers: those whose credit is
        the reference by construction.
    loss_from: (layer, h, y) -> the loss of each sample when a run starts at h_layer = h. h [n, ...] comes as numpy float64
        with the labels y of the same samples; n varies. It proves g by finite differences, and is needed for level="full"
        (ρ and nudging with their controls). Answer in float64 if you can: a float32 loss resolves less.
    fit_batches: mappings with h and labels (and x) of samples that are not in `batches`: adds the depth profile. An entry
        `twin` [h_0, ..., h_L] holds the states of the twin (the network with random blocks) on the same samples, here and in
        `batches` (or `test_batches`, where the readouts are tested on other samples).
    thresholds, headline_acc, frozen_baseline_acc and the other claims: as for `diagnose`.

    What cannot be measured from arrays is left out, and the report says why.
    """
    if unknown := set(claims) - set(Claims.__annotations__):
        raise TypeError(f"diagnose_arrays() got an unexpected keyword argument {min(unknown)!r}")
    thresholds = thresholds or DiagnosticThresholds()
    get_policy(claims.get("protocol", "three-check"))  # a wrong name is refused before anything is measured
    for name, value, known in (
        ("reduction", reduction, ("sum", "mean")),
        ("credit_reduction", credit_reduction or reduction, ("sum", "mean")),
        ("kind", kind, ("residual", "plain")),
        ("level", level, LEVELS),
    ):
        if value not in known:
            raise CreditscopeError(f"{name} is {value!r}; give {' or '.join(map(repr, known))}")
    if fit_batches is None and test_batches is not None:
        raise CreditscopeError("test_batches is given without fit_batches; the readouts of the profile need both")
    of_a = Reduction(credit_reduction or reduction, None if credit_reduction == "sum" else batch_size)
    of_g = Reduction(reduction, None if reduction == "sum" and credit_reduction == "mean" else batch_size)
    arrays = ArrayBatches(kind, read, dtype, loss_from)
    seen = _Seen(arrays, loss, holds=fit_batches is not None and test_batches is None)
    for batch in arrays.read(batches, "batches", ("h", "g")):
        g = [of_g(each, batch.n) for each in batch.g]
        a = None if batch.a is None else [None if each is None else of_a(each, batch.n) for each in batch.a]
        if a is not None and seen.rule is None:
            seen.rule = GivenCredit(a, trained_layers, exact_layers, arrays.stream.depth)
        seen.add(batch, g, a)
    if seen.got is None:
        raise CreditscopeError("batches is empty; give at least one batch (8 disjoint batches of 128 are advised)")
    if seen.labels:
        same_labels(seen.labels)
    stream, rule = arrays.stream, seen.rule
    proof = _proof(stream, seen.kept[:1], of_g)
    facts = facts_from(seen.got, stream, rule, thresholds.floor_for(arrays.dtype_name), loss, checkpoint, proof)
    convention = {"mode": mode, "reduction": of_g.note or facts.convention.reduction}
    update: dict[str, Any] = {"convention": facts.convention.model_copy(update=convention)}
    if not seen.losses_known:
        update["loss"] = None
    if fit_batches is not None:
        tested: Iterable[tuple[States, Tensor]] = (
            seen.held if test_batches is None else _labelled(arrays, test_batches, "test_batches")
        )
        update["profile"] = profile_of_states(stream, _labelled(arrays, fit_batches, "fit_batches"), tested)
    if level == "full":
        update |= _functional(stream, seen.kept, rule)
    return make_report(facts.model_copy(update=update), thresholds=thresholds, **claims)


@dataclass
class _Kept:
    """Samples that the proof and the functional metrics look at."""

    y: Tensor
    h: list[Tensor]
    """Native, as they were given."""
    g: list[Tensor]
    """Native, of each sample's own loss."""
    a: list[Tensor] | None
    """As they are read."""
    logits: Tensor | None
    losses: Tensor | None


@dataclass
class _Seen:
    """What is taken of the batches as they come by, once."""

    arrays: ArrayBatches
    loss: str
    holds: bool
    """Hold the states for the profile."""
    rule: GivenCredit | None = None
    got: Collected | None = None
    kept: list[_Kept] = field(default_factory=list)
    held: list[tuple[States, Tensor]] = field(default_factory=list)
    labels: Batches = field(default_factory=Batches)
    losses_known: bool = True
    repeats: Repeats = field(default_factory=Repeats)

    def add(self, batch: ArrayBatch, g: list[Tensor], a: list[Tensor | None] | None) -> None:
        """g, a: of each sample's own loss."""
        stream = self.arrays.stream
        got = self.got = self.got or Collected(stream.depth)
        losses = _losses(batch, self.loss)
        read = [stream.read_grad(each) for each in g]
        for layer, h in enumerate(batch.h):
            got.add_state(layer, stream.read_state(h), stream.all_tokens(h))
            got.add_gradient(layer, read[layer])
        credits: list[Tensor] | None = None
        if a is not None and self.rule is not None:
            credits = [stream.read_grad(each) for each in self.rule.filled(a, batch, stream)]
            for layer, each in enumerate(credits):
                got.add_credit(layer, each, read[layer])
        if batch.logits is not None and batch.labels is not None:
            got.add_logits(batch.logits, batch.labels, is_finite(batch.logits))
        if batch.losses is not None and "logits" not in got.non_finite:
            got.note("loss", batch.losses)
        self.losses_known = self.losses_known and losses is not None
        got.add_samples(batch.n, torch.zeros(1) if losses is None else losses)
        got.digest.add(batch.h[0] if batch.x is None else batch.x, batch.y)
        self.repeats.add((batch.x, batch.h), batch.y)
        got.repeated = self.repeats.number
        if batch.labels is not None:
            self.labels.append((None, batch.labels))
        if self.holds:
            self.held.append(_states(batch, "batches"))
        n = min(batch.n, N_SAMPLES - sum(len(one.y) for one in self.kept))
        if stream.loss_from is not None and n > 0:
            few = [[t[:n] for t in layers] for layers in (batch.h, g, credits or [])]
            logits, losses = (None if t is None else t[:n] for t in (batch.logits, losses))
            self.kept.append(_Kept(batch.y[:n], few[0], few[1], few[2] or None, logits, losses))


def _losses(batch: ArrayBatch, loss: str) -> Tensor | None:
    """[B], as far as they are known."""
    if loss != CROSS_ENTROPY or batch.logits is None or batch.labels is None:
        return batch.losses
    if batch.labels.shape != batch.logits.shape[:-1]:
        raise CreditscopeError(
            f"labels have shape {list(batch.labels.shape)} for logits {list(batch.logits.shape)}; give one label per sample (or "
            "token), or name another loss and give losses"
        )
    check_labels(batch.labels, batch.logits.shape[-1])
    own = cross_entropy(batch.logits, batch.labels)
    if batch.losses is None:
        return own
    if difference(batch.losses, own) > _same_loss(batch.logits, batch.losses):
        raise CreditscopeError(
            f"losses are {_few(batch.losses[:SAMPLES])} where logits and labels give a cross-entropy of {_few(own[:SAMPLES])}; "
            "name the loss (loss='...') if it is another one"
        )
    return batch.losses


# ---- by loss_from --------------------------------------------------------------------------------------------------


def _hand_on(losses: Tensor, y: Tensor) -> Tensor:
    """The loss function of a stream whose runs answer with losses."""
    return losses


def _proof(stream: RecordedStream, kept: list[_Kept], stated: Reduction) -> Proof:
    """What `loss_from` can prove, on a few samples; without it nothing."""
    none: tuple[None, ...] = (None,) * (stream.depth + 1)
    if not kept:
        why = "given as arrays without loss_from"
        return Proof(
            n_samples=0,
            logits=None,
            independent=None,
            swap=none,
            gradient=none,
            gradient_dtype="none",
            gradient_reason=why,
        )
    few = kept[0]
    n = min(SAMPLES, len(few.y))
    y, g = few.y[:n], [each[:n] for each in few.g]
    states = [h[:n].double() for h in few.h]
    finite = all(bool(t.isfinite().all()) for t in (*states, *g))
    runs = [stream.logits_from(layer, h, y) for layer, h in enumerate(states)]
    losses = runs[-1] if few.losses is None else few.losses[:n]
    errors = [difference(run.double(), losses.double()) for run in runs]
    if finite and (wild := [layer for layer, run in enumerate(runs) if not bool(run.isfinite().all())]):
        raise CreditscopeError(
            f"loss_from({wild[0]}, h_{wild[0]}) gives the losses {_few(runs[wild[0]])} of finite states; return finite losses"
        )
    if finite and max(errors) > _same_loss(losses, *few.h):
        layer = errors.index(max(errors))
        raise CreditscopeError(
            f"loss_from({layer}, h_{layer}) gives the losses {_few(runs[layer])} where "
            f"{'h_L gives' if few.losses is None else 'the batch has'} {_few(losses)}: it is not the same network"
        )
    alone = torch.cat([stream.logits_from(0, states[0][k : k + 1], y[k : k + 1]) for k in range(n)])
    exact = runs[-1].dtype == torch.float64
    steps, tolerance = (STEPS, GRADIENT) if exact else (STEPS_FLOAT32, GRADIENT_FLOAT32)
    gradient: list[float | None] = [*none]
    why = ""
    if g[0].dtype in HALF:
        why = f"g is {str(g[0].dtype).removeprefix('torch.')}, too coarse for a finite difference"
    elif finite:
        logits = runs[-1].unsqueeze(1) if few.logits is None else few.logits[:n]
        grads = [each.double() for each in g]
        held = Differences(stream, y, states, grads, runs[-1], logits, y, _hand_on, steps, tolerance)
        gradient, _ = held.compared()
    for layer, error in enumerate(gradient):
        if error is not None and error > tolerance:
            size = "" if stated.size is None else f", batch_size={stated.size!r}"
            raise CreditscopeError(
                f"g_{layer} is off a finite difference of loss_from by a relative {error:.2g}; reduction={stated.reduction!r}"
                f"{size} was stated: state how g was taken, or correct g"
            )
    return Proof(
        n_samples=n,
        logits=max(errors),
        independent=None if n < 2 else difference(alone, runs[0]) <= (1e-6 if exact else SAME_LOSS),
        swap=(0.0,) * (stream.depth + 1),  # a run of loss_from sees the state and the labels, nothing else
        gradient=tuple(gradient),
        gradient_dtype=str(runs[-1].dtype).removeprefix("torch."),
        gradient_reason=why,
    )


def _same_loss(*given: Tensor) -> float:
    return SAME_LOSS_HALF if any(t.dtype in HALF for t in given) else SAME_LOSS


def _few(losses: Tensor) -> str:
    return ", ".join(f"{value:.4g}" for value in losses.tolist())


def _functional(
    stream: RecordedStream, kept: list[_Kept], rule: GivenCredit | None
) -> dict[str, Perturbation | Nudging | FreshB | None]:
    """The fields `perturbation`, `nudging`, `fresh_b` of the facts."""
    fresh = FreshB(layers=(), seed=FRESH_SEED, reason="not measured: the rule's feedback cannot be redrawn from arrays")
    found: dict[str, Perturbation | Nudging | FreshB | None] = {"fresh_b": None if rule is None else fresh}
    if not kept:
        rho, nudge = not_measured(
            "not measured: it needs loss_from, which runs the network from a state that was moved"
        )
        return {**found, "perturbation": rho, "nudging": nudge}
    rng = torch.Generator().manual_seed(CONTROL_SEED)
    probes = [_probe(stream, few, rng) for few in kept]
    layers: tuple[Any, ...] = ()
    if rule is not None:
        layers = rule.exact_layers(stream.depth), rule.trained_layers(stream.depth, stream.kind)
    of = str(probes[0].losses.dtype).removeprefix("torch.")
    taken = {"dtype": f"{of} as loss_from answers; states and credit as they were given"}
    return {
        **found,
        "perturbation": perturbation(stream, probes, _hand_on, *layers).model_copy(update=taken),
        "nudging": nudging(stream, probes, _hand_on, *layers).model_copy(update=taken),
    }


def _probe(stream: RecordedStream, few: _Kept, rng: torch.Generator) -> Probe:
    states = [h.double() for h in few.h]
    runs = [stream.logits_from(layer, h, few.y) for layer, h in enumerate(states)]
    credits = with_controls(few.a, [stream.read_grad(g) for g in few.g], rng)
    coarse = resolution(runs[-1], runs[-1].unsqueeze(1) if few.logits is None else few.logits)
    return Probe(few.y, few.y, states, runs[-1], coarse, credits, runs)


# ---- depth profile -------------------------------------------------------------------------------------------------


def _labelled(arrays: ArrayBatches, batches: Any, name: str) -> Iterator[tuple[States, Tensor]]:
    found = False
    for batch in arrays.read(batches, name, ("h", "labels")):
        found = True
        yield _states(batch, name)
    if not found:
        raise CreditscopeError(f"{name} is empty; give batches with h and labels")


def _states(batch: ArrayBatch, name: str) -> tuple[States, Tensor]:
    if batch.labels is None:
        raise CreditscopeError(f"{name} have no labels; the readouts of the profile need them")
    return States(batch.x, batch.h, batch.twin), batch.labels
