"""One forward and one backward pass per batch: everything that is measured at every layer is taken on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from creditscope.credit.base import CallableRule, CreditBatch, CreditRule, as_rule, descent_of, is_finite
from creditscope.errors import CreditscopeError
from creditscope.measure.alignment import aggregate, alignment, clamped_cosine, inner_products
from creditscope.measure.binomial import evaluation
from creditscope.measure.concentration import concentration
from creditscope.measure.facts import Convention, Evaluation, Facts, Proof, StreamInfo
from creditscope.measure.loss import LossFn, cross_entropy, of_any_number, token_losses
from creditscope.measure.proof import Excerpt, Seen, prove
from creditscope.measure.reference import SURE, reference
from creditscope.measure.scale import scale
from creditscope.measure.stability import GroupMeans, stability
from creditscope.measure.weights import Weights
from creditscope.stream.batches import (
    SAMPLES,
    Batches,
    SampleHash,
    as_batches,
    cannot_run,
    device_of,
    repeated_samples,
    tensors_of,
)
from creditscope.stream.blocks import left_out
from creditscope.stream.devices import dtype_in
from creditscope.stream.eager import original
from creditscope.stream.interface import ROUNDING, OtherRead, Stream, difference, make_stream
from creditscope.stream.labels import IGNORED
from creditscope.stream.ranks import Ranks, whole_tensor
from creditscope.stream.untouched import parameters_as, untouched

Watch = Callable[[CreditBatch, list[Tensor], list[Tensor]], None]
"""watch(batch, g, a): sees every batch with g_l and a_l, l = 0..L, as they are read ([B, d_l])."""
Array = NDArray[np.float64]
CHUNK = 2**17
"""Numbers that are lifted to float64 at a time."""


def check_labels(y: Tensor, n_classes: int, instead: str = "") -> None:
    """instead: what else may be done, for the line that refuses."""
    if y.is_floating_point() or y.dtype == torch.bool:
        raise CreditscopeError(f"labels have dtype {y.dtype}; give integer class indices{instead}")
    tokens = y.dim() > 1
    if tokens:
        y = y[y != IGNORED]
    if y.numel() and (int(y.min()) < 0 or int(y.max()) >= n_classes):
        bad = int(y.min()) if int(y.min()) < 0 else int(y.max())
        raise CreditscopeError(
            f"label {bad} is out of range for logits with {n_classes} classes (0 to {n_classes - 1}); give class indices"
            f"{f', {IGNORED} for what is not scored' if tokens else ''}{instead}"
        )


def classes_may_be_second(logits: Tensor, y: Tensor) -> bool:
    """Do the labels also fit logits [B, C, ...], as torch's own cross-entropy takes them?"""
    return logits.dim() > 2 and y.shape == (len(logits), *logits.shape[2:])


@dataclass
class Collected:
    """Raw per-sample numbers of a sweep; lists are per layer, each entry an array per batch."""

    depth: int
    h: list[list[Array]] = field(init=False)
    tokens: list[list[Array]] = field(init=False)
    """Norms over all tokens, where one vector of them is read; else empty."""
    g: list[list[Array]] = field(init=False)
    dot: list[list[Array]] = field(init=False)
    a_squared: list[list[Array]] = field(init=False)
    clamped: list[list[Array]] = field(init=False)
    groups: list[GroupMeans] = field(init=False)
    correct: int = 0
    classes: int = 0
    """C, where labels are classes."""
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Scored labels of each class."""
    scored: int = 0
    """Labels that `correct` counts over: one per sample, or one per scored token; 0 where labels are no classes."""
    classless: bool = False
    """A label was none of the classes of the logits."""
    few: tuple[Tensor, list[int]] | None = None
    """Logits of samples of the first batch, and where its first ones stand among them."""
    n: int = 0
    loss: float = 0.0
    rounded: int = 0
    """Samples whose cross-entropy float32 rounds to next to nothing."""
    slopes: list[Array] = field(default_factory=list)
    """Norms of the gradient of a loss other than cross-entropy at the logits, over the most that a cross-entropy has."""
    batch_sizes: set[int] = field(default_factory=set)
    non_finite: dict[str, None] = field(default_factory=dict)
    digest: SampleHash = field(default_factory=SampleHash)
    repeated: int = 0
    """Samples that are equal to an earlier one, to the bit."""

    def __post_init__(self) -> None:
        for name in ("h", "tokens", "g", "dot", "a_squared", "clamped"):
            setattr(self, name, [[] for _ in range(self.depth + 1)])
        self.groups = [GroupMeans() for _ in range(self.depth + 1)]

    def array(self, name: str) -> Array:
        """[L+1, N]."""
        return np.stack([np.concatenate(rows) for rows in getattr(self, name)])

    def note(self, place: str, t: Tensor | Array) -> None:
        ok = is_finite(t) if isinstance(t, Tensor) else bool(np.isfinite(t).all())
        if not ok:
            self.non_finite[place] = None

    def add_state(self, layer: int, h: Tensor, tokens: Tensor | None = None) -> None:
        """h_l of a batch as it is read, [B, d_l]; tokens: all of it, where that is one vector of several."""
        norm = by_rows(lengths, h)
        self.h[layer].append(norm)
        self.note(f"h_{layer}", norm)
        if tokens is not None:
            self.tokens[layer].append(by_rows(lengths, tokens))

    def add_gradient(self, layer: int, g: Tensor) -> None:
        """g_l of a batch as it is read, [B, d_l]: of each sample's own loss."""
        norm = by_rows(lengths, g)
        self.g[layer].append(norm)
        self.note(f"g_{layer}", norm)
        self.groups[layer].add(g)

    def add_credit(self, layer: int, a: Tensor, g: Tensor) -> None:
        """a_l and g_l of a batch as they are read, [B, d_l]."""
        dot, a_squared = by_rows(lambda u, v: np.stack(inner_products(u, v)), a, g)
        self.dot[layer].append(dot)
        self.a_squared[layer].append(a_squared)
        self.clamped[layer].append(by_rows(clamped_cosine, a, g))
        # squares of large float64 credit overflow
        self.note(f"credit a_{layer}", a_squared if np.isfinite(a_squared).all() else a)

    def add_logits(self, logits: Tensor, y: Tensor, finite: bool, of_user: bool = False) -> None:
        if not finite:
            self.non_finite["logits"] = None
        self.score(logits, y, of_user)

    def add_slope(self, g: Tensor) -> None:
        """Gradient of the loss at the logits, [B], [B, C] or [B, T, C]; a cross-entropy has at most √2 at each row of C."""
        rows = g[0].numel() // g.shape[-1] if g.dim() > 1 else 1
        self.slopes.append(by_rows(lengths, g.detach().reshape(len(g), -1)) / math.sqrt(2 * rows))

    def add_samples(self, n: int, losses: Tensor) -> None:
        """A batch of n samples with their losses [n]."""
        self.n += n
        self.loss += float(losses.double().sum())
        self.batch_sizes.add(n)

    def score(self, logits: Tensor, y: Tensor, of_user: bool = False) -> None:
        """of_user: the loss is the user's own, which may take the classes from another place than the last."""
        if y.is_floating_point() or y.shape != logits.shape[:-1]:
            return
        if (of_user or logits.dim() > 3) and classes_may_be_second(logits, y):
            return
        if self.classes not in (0, logits.shape[-1]):
            raise CreditscopeError(
                f"logits have {self.classes} classes in one batch and {logits.shape[-1]} in another; give batches of one network"
            )
        self.classes = logits.shape[-1]
        known = y[y != IGNORED].flatten().cpu()
        self.classless |= bool(((known < 0) | (known >= self.classes)).any())
        if self.classless:  # labels of another loss
            self.scored = 0
            return
        self.correct += int((logits.argmax(-1) == y).sum())
        self.scored += len(known)
        seen = torch.bincount(known, minlength=self.classes)
        self.labels = seen + (self.labels if len(self.labels) else 0)

    @property
    def evaluation(self) -> Evaluation | None:
        if not self.scored:
            return None
        return evaluation(
            self.correct / self.scored,
            min(self.n, self.scored),
            self.classes,
            int(self.labels.max()) / int(self.labels.sum()),
        )


def collect(
    stream: Stream,
    batches: Iterable[tuple[Any, Tensor]],
    credit: CreditRule | None,
    loss_fn: LossFn,
    watch: Watch | None = None,
    hashed: bool = True,
    seen: Seen | None = None,
) -> Collected:
    """Run the batches through the stream and keep what every fact needs. Call inside `untouched(model)`.

    seen: is shown a few samples of some batches.
    hashed: False where the same batches are measured again and again and nobody asks which they were.
    """
    got = Collected(stream.depth)
    weights = Weights(stream.model, summed=credit is not None)
    for number, (inputs, y) in enumerate(batches):
        shown = None if seen is None else seen.excerpt(number, inputs, y)
        _one_batch(stream, inputs, y, credit, loss_fn, got, watch, weights, shown)
        if seen is not None and shown is not None:
            seen.look(shown)
            got.few = None if seen.proved else got.few
        if hashed:
            got.digest.add(inputs, y)
    if credit is not None:
        weights.require_unchanged(credit, values=True)
    return got


def by_rows(fn: Callable[..., Array], *tensors: Tensor) -> Array:
    """fn over a few samples at a time, so that float64 copies stay small; samples are the last axis of its result."""
    step = max(1, CHUNK // max(1, tensors[0].shape[1]))
    return np.concatenate([fn(*(t[k : k + step] for t in tensors)) for k in range(0, len(tensors[0]), step)], axis=-1)


def lengths(u: Tensor) -> Array:
    """[B, d] -> L2 norm of each row, [B], in float64; also where the squares of a float64 row over- or underflow."""
    norm: Array = torch.linalg.vector_norm(u, dim=1, dtype=torch.float64).cpu().numpy()
    extreme = ~(np.isfinite(norm) & (norm > 1e-150))
    if extreme.any():
        u = u.double()
        largest = u.abs().amax(1)
        scaled = (largest * (u / largest.unsqueeze(1)).norm(dim=1)).cpu().numpy()
        size = largest.cpu().numpy()
        norm = np.where(extreme & (size > 0) & np.isfinite(size), scaled, norm)
    return norm


def _one_batch(
    stream: Stream,
    inputs: Any,
    y: Tensor,
    credit: CreditRule | None,
    loss_fn: LossFn,
    got: Collected,
    watch: Watch | None,
    weights: Weights,
    shown: Excerpt | None = None,
) -> None:
    hiddens: list[Tensor] = []
    credits: Iterator[tuple[int, Tensor]] | None = None
    batch: CreditBatch | None = None
    seen: list[tuple[Tensor, Tensor]] = []
    given: list[tuple[str, Tensor, int]] = []
    come: set[int] = set()
    backward = False

    def arrived(layer: int, native: Tensor | None) -> None:
        """g_l has come by on the backward pass (layers arrive from L down to 0)."""
        nonlocal credits
        if not backward or native is None:  # the model takes one in its own forward pass, or an operation has none
            return
        come.add(layer)
        g = stream.read_grad(native.detach())
        if layer == stream.depth:
            stream.require_read(native.detach())
        got.add_gradient(layer, g)
        if shown is not None:
            shown.add_gradient(layer, native.detach())
        if credit is None or batch is None:
            return
        if credits is None:
            batch.output_grad = g
            credits = descent_of(credit, batch)
        if credit.is_exact:
            a = g
        else:
            # hooks run with gradients off, and a rule may need them; those of the weights for its work at the first layer
            # it meets (to switch them at every layer would make the cost quadratic in depth)
            with parameters_as(weights.flags if layer == stream.depth else []), torch.enable_grad():
                _, a = next(credits)
                a = stream.read_grad(a.detach())
                if layer == 0:
                    next(credits, None)  # one more is one too many
        if layer in (0, stream.depth):
            weights.require_unchanged(credit)
            _require_unwritten(credit, given)
        got.add_credit(layer, a, g)
        if watch is not None:
            seen.append((g, a))

    def tap(layer: int, value: Tensor, handle: Tensor) -> None:
        h = stream.read_state(value.detach())
        if len(h) != len(y):
            raise CreditscopeError(
                f"h_{layer} has {len(h)} rows for a batch of {len(y)} samples, and one for each on the first samples; the model "
                "must pass a batch through its blocks as a whole (give smaller batches where it splits them)"
            )
        if h.shape[1] != stream.widths[layer]:
            raise CreditscopeError(
                f"h_{layer} has {h.shape[1]} numbers per sample in one batch and {stream.widths[layer]} in the first; "
                "give batches of one shape (pad sequences to one length)"
            )
        got.add_state(layer, h, stream.all_tokens(value.detach()))
        if shown is not None:
            shown.add_state(layer, value.detach())
        if credit is not None:
            hiddens.append(value.detach())
            given.append((f"h_{layer}", hiddens[-1], hiddens[-1]._version))
        if layer > 0:
            handle.register_hook(lambda g: arrived(layer, g))
        else:
            leaf.append(get_gradient_edge(handle))

    leaf: list[GradientEdge] = []  # as it is now: a block may write to the tensor
    # a checkpoint runs its part again on the way back: parameters must then be as they were
    with torch.enable_grad(), stream.graph():
        try:
            logits = stream.forward(inputs, tap)
        except CreditscopeError:
            raise
        except Exception as error:  # it is the user's code: anything may come, and it is told as it is
            raise cannot_run(error) from error
        finite = is_finite(logits.detach())
        if not finite:
            _require_clean(inputs, logits.detach())
        own = stream.own_logits(inputs)
        if own is not None:
            off = difference(logits, own)
            if off > ROUNDING.get(own.dtype, ROUNDING[torch.float32]):
                raise CreditscopeError(
                    f"embed, blocks and readout do not give the model's own logits on this batch (relative difference "
                    f"{off:.2g}, none on the first samples); pass blocks= so that the model is seen through hooks instead"
                )
        if loss_fn is cross_entropy:
            if y.shape != logits.shape[:-1]:
                raise CreditscopeError(
                    f"labels have shape {list(y.shape)} for logits {list(logits.shape)}; give one label per sample "
                    "(or per token), or pass loss_fn"
                )
            if logits.dim() > 3 and classes_may_be_second(logits, y):
                raise CreditscopeError(
                    f"logits of shape {list(logits.shape)} may have their classes last or, as in segmentation, second; pass "
                    "loss_fn"
                )
            check_labels(y, logits.shape[-1], ", or pass loss_fn")
        losses: Any
        if loss_fn is cross_entropy and y.dim() > 1 and logits.requires_grad:
            losses, slope = token_losses(logits.detach(), y)
        else:
            if loss_fn is not cross_entropy and logits.requires_grad:
                logits.register_hook(got.add_slope)
            losses, slope = loss_fn(logits, y), None
            if not isinstance(losses, Tensor) or not losses.requires_grad:
                raise CreditscopeError(
                    f"loss_fn returned a {type(losses).__name__} without a gradient; it must return a tensor that depends on the "
                    "logits, one loss per sample"
                )
        if losses.shape != (len(y),):
            raise CreditscopeError(
                f"the loss has shape {list(losses.shape)} for {len(y)} samples; loss_fn must return one loss per sample "
                "(reduction='none')"
            )
        if not got.n and loss_fn is not cross_entropy:
            _require_own_loss(loss_fn, logits.detach(), y, losses.detach())
        if credit is not None:
            # copies where a rule that writes would write into the graph or into the user's own data
            if isinstance(credit, CallableRule):
                hiddens = [h.clone() for h in hiddens]
            batch = CreditBatch(stream, hiddens, logits.detach().clone(), y.clone(), inputs=inputs)
            weights.begin()
            given += [(f"input {k}", t, t._version) for k, t in enumerate(tensors_of(inputs))]
        backward = True
        try:
            first: Any = torch.autograd.grad(
                losses.sum() if slope is None else logits, leaf[0], slope, allow_unused=True
            )
        except CreditscopeError:
            raise
        except RuntimeError as error:
            in_place = "inplace operation" in str(error)
            written = ": it writes in place to a tensor that its backward pass needs" if in_place else ""
            raise CreditscopeError(
                f"the model and its loss cannot be differentiated in eval mode{written} ({' '.join(str(error).split())[:160]})"
            ) from error
    g0 = first[0]
    lost = [layer for layer in range(1, stream.depth + 1) if layer not in come] + ([] if g0 is not None else [0])
    if lost:
        raise CreditscopeError(
            f"no gradient of the loss arrives at h_{min(lost)}: the graph is cut behind it (a detach or no_grad), or the logits "
            "do not depend on it; diagnose the network without the cut"
        )
    arrived(0, g0)
    if watch is not None and batch is not None:
        watch(batch, [g for g, _ in reversed(seen)], [a for _, a in reversed(seen)])
    got.add_logits(logits.detach(), y, finite, loss_fn is not cross_entropy)
    got.add_samples(len(y), losses.detach())
    if loss_fn is cross_entropy and losses.dtype == torch.float32:
        scored = (y.unsqueeze(-1) != IGNORED).flatten(1).any(1)
        got.rounded += int(((losses.detach() < SURE) & scored).sum())
    if shown is not None:
        shown.add_logits(logits.detach())
    if got.n == len(y):  # the first batch
        few = range(min(SAMPLES, len(y)))
        if shown and {*few} <= {*shown.samples}:
            got.few = shown.logits, [shown.samples.index(k) for k in few]
        else:
            got.few = logits.detach()[:SAMPLES].clone(), [*few]


def _on_labels_as_fine(loss_fn: LossFn) -> LossFn:
    """The same loss, with labels that are numbers in float64 where the logits are: some have no backward pass otherwise."""

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return loss_fn(logits, y.double() if y.is_floating_point() and logits.dtype == torch.float64 else y)

    return loss


def _require_own_loss(loss_fn: LossFn, logits: Tensor, y: Tensor, losses: Tensor) -> None:
    """The loss of a sample is its own: the same in its batch, by itself and beside another one, and so is its gradient.

    A mean over the batch would make g_l smaller the more samples there are.
    """
    for _ in range(1 if len(y) > SAMPLES else 4):  # noise on few samples may be the same twice
        with torch.no_grad():
            again = loss_fn(logits.detach().clone(), y).reshape(len(y))
        if not _is_near(losses, again, None):
            raise CreditscopeError(
                "loss_fn gives other losses when it is called again for the same logits and labels; it must not draw random "
                "numbers"
            )
    n, k = len(y), int(losses.abs().nan_to_num(0.0).argmax())  # a loss of 0 has no share to lose
    one, label, own = logits[k : k + 1], y[k : k + 1], losses[k : k + 1]
    other = one.flip(-1) if one.dim() > 1 and one.shape[-1] > 1 else 1 - one
    runs = {
        where: (torch.cat([one] + [other] * more), torch.cat([label] + [y[-1:]] * more))
        for where, more in (("by itself", 0), ("beside another sample", 1), ("beside two others", 2))
    }
    slopes = []
    for where, (given, labels) in runs.items():
        given = given.clone().requires_grad_()
        try:
            each = loss_fn(given.clone(), labels)  # it may write to them
            found = each.detach().reshape(len(labels))[:1]
            slopes.append(torch.autograd.grad(each.sum(), given)[0][:1])
        except Exception as error:  # it is the user's code: anything may come, and it is told as it is
            why = " ".join((str(error) or type(error).__name__).split())[:160]
            raise CreditscopeError(
                f"loss_fn takes a batch of {n} samples and not {len(labels)} of them ({why}); it must give the loss of any "
                "samples"
            ) from error
        if not _is_near(own, found, one):
            raise CreditscopeError(
                f"loss_fn gives sample {k} a loss of {float(own):.4g} in its batch of {n} and of {float(found[0]):.4g} "
                f"{where}; it must give each sample its own loss, without a mean over the batch, and the same every time"
            )
    if not all(_is_near(slopes[0].flatten(), each.flatten(), torch.ones_like(one)) for each in slopes[1:]):
        raise CreditscopeError(
            f"the gradient of loss_fn for sample {k} changes when another sample is in the batch; it must give each sample its "
            "own loss, without a mean over the batch"
        )


def _is_near(a: Tensor, b: Tensor, rounded: Tensor | None) -> bool:
    """Equal but for rounding in their dtype, or in that of the logits, of which they were computed; NaN is near anything."""
    close = ROUNDING.get(a.dtype, ROUNDING[torch.float32])
    most = close * float(torch.maximum(a.abs().max(), b.abs().max()))
    if rounded is not None:
        most += 10 * torch.finfo(rounded.dtype).eps * float(rounded[:1].abs().max())
    return not float((a - b).abs().max()) > most


def _require_clean(inputs: Any, logits: Tensor) -> None:
    """Non-finite logits of samples whose inputs are not finite say nothing about the network."""
    bad = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    for t in tensors_of(inputs):
        if t.is_floating_point() and t.dim() and len(t) == len(logits):
            bad |= ~t.flatten(1).isfinite().all(1) if t.dim() > 1 else ~t.isfinite()
    hurt = ~logits.reshape(len(logits), -1).isfinite().all(1)
    if bool(bad.any()) and bool((hurt <= bad).all()):
        raise CreditscopeError(
            f"the inputs of {int(bad.sum())} of {len(bad)} samples of a batch hold NaN or Inf, and so do their logits: this "
            "says nothing about the network; clean the batches"
        )


def _require_unwritten(credit: CreditRule, given: list[tuple[str, Tensor, int]]) -> None:
    written = [name for name, t, version in given if t._version != version]
    if written:
        raise CreditscopeError(
            f"credit rule {credit.name or type(credit).__name__!r} wrote into the tensor {written[0]} that it was given; let it "
            "work on a copy (clone())"
        )


def facts_from(
    got: Collected,
    stream: Stream,
    credit: CreditRule | None,
    floor: float,
    loss_name: str = "cross-entropy",
    checkpoint: str = "final",
    proof: Proof | None = None,
) -> Facts:
    """Turn the raw numbers of a sweep into facts."""
    for name, p in stream.model.named_parameters():
        if not is_finite(whole_tensor(p.detach())):
            got.non_finite[f"weights {name}"] = None
            break
    aligned = aggregated = concentrated = None
    if credit is not None:
        with np.errstate(over="ignore"):
            dot, a_squared, g_squared = got.array("dot"), got.array("a_squared"), got.array("g") ** 2
        counting = credit.trained_layers(stream.depth, stream.kind)
        aligned = alignment(dot, a_squared, g_squared, floor, counting, credit.counting_note(stream.depth, stream.kind))
        aggregated = aggregate(dot, a_squared, g_squared, got.array("clamped"), counting)
        concentrated = concentration(aligned.mean, credit.exact_layers(stream.depth), counting)
    return Facts(
        convention=Convention(
            n_samples=got.n,
            samples=str(got.digest),
            repeated=got.repeated,
            batch_sizes=tuple(sorted(got.batch_sizes)),
            loss=loss_name,
            dtype=dtype_of(stream.model),
            device=device_of(stream.model).type,
            checkpoint=checkpoint,
        ),
        stream=StreamInfo(
            kind=stream.kind,
            depth=stream.depth,
            read=stream.read,
            widths=stream.widths,
            blocks=stream.names,
            left_out=left_out(stream.model, stream.names),
            notes=stream.notes,
        ),
        proof=proof,
        accuracy=got.correct / got.scored if got.scored else None,  # labels that are no classes
        evaluation=got.evaluation,
        loss=got.loss / got.n if math.isfinite(got.loss) else float("nan"),
        scale=scale(got.array("h"), got.array("tokens") if all(got.tokens) else None),
        reference=reference(got.array("g"), got.rounded, got.slopes),
        alignment=aligned,
        aggregate=aggregated,
        concentration=concentrated,
        stability=stability(got.groups),
        non_finite=tuple(got.non_finite),
    )


def dtype_of(model: nn.Module) -> str:
    """Name of the dtype that the model computes in."""
    return str(dtype_in(model)).removeprefix("torch.")


def sweep(
    model: nn.Module,
    eval_batches: Iterable[Any],
    credit: Any = None,
    *,
    blocks: Any = None,
    read: str | None = None,
    loss_fn: LossFn | None = None,
    floor: float = 1e-7,
    checkpoint: str = "final",
    watch: Watch | None = None,
    forward_kwargs: Mapping[str, Any] | None = None,
    shift_labels: bool | None = None,
) -> Facts:
    """Measure `model` on `eval_batches`; the model, its gradients, its mode and every RNG are left as found."""
    credit = as_rule(credit)
    model = original(model)
    if isinstance(eval_batches, Batches):
        batches = eval_batches
    else:
        with untouched(model, reads=eval_batches):
            batches = as_batches(model, eval_batches, forward_kwargs, loss_fn is not None, shift_labels)
    with untouched(model):
        stream, got, proof = measured(model, batches, credit, blocks, read, loss_fn or cross_entropy, watch)
    return facts_from(got, stream, credit, floor, loss_name(loss_fn, batches), checkpoint, proof)


def measured(
    model: nn.Module,
    batches: Batches,
    credit: CreditRule | None,
    blocks: Any,
    read: str | None,
    loss_fn: LossFn,
    watch: Watch | None = None,
    hashed: bool = True,
) -> tuple[Stream, Collected, Proof]:
    """See the model as a stream, run the batches through it, and prove it. Call inside `untouched(model)`."""
    inputs, y = batches[0]
    loss_fn = of_any_number(loss_fn if loss_fn is cross_entropy else _on_labels_as_fine(loss_fn))
    stream = make_stream(model, inputs, len(y), blocks, read, measured=True)
    if batches.output_note:
        stream.notes = (*stream.notes, batches.output_note)
    for attempt in (1, 2):
        if credit is not None:
            credit.attach(stream)
        try:
            seen = Seen(stream, batches, loss_fn)
            got = collect(stream, batches, credit, loss_fn, watch, hashed, seen)
            break
        except OtherRead as found:
            if read is not None or attempt == 2:
                raise
            stream = stream.reading("flatten", f"read over all tokens: {found}")
    got.repeated = repeated_samples(batches) if hashed else 0
    proof = seen.proof()
    if proof is None:
        if got.few is None:  # let go of too early: a later batch does not bear out the first one
            with torch.no_grad():
                got.few = stream.forward(inputs, lambda *_: None), [*range(min(SAMPLES, len(y)))]
        logits, first = got.few
        few = torch.stack([logits[k] for k in first])
        proof = prove(stream, inputs, y, loss_fn, few, seen.open, seen.coupled)
    return stream, got, proof


def facts_of_ranks(ranks: Ranks | None, work: Callable[[], Facts]) -> Facts:
    """The facts that `work` measures; of a model that several processes hold, the same on every rank."""
    if ranks is None:
        return work()
    return Facts.model_validate_json(ranks.answer(lambda: work().model_dump_json()))


def loss_name(loss_fn: LossFn | None, batches: Batches) -> str:
    """What the loss is, for the convention."""
    if loss_fn is not None:
        return getattr(loss_fn, "__name__", type(loss_fn).__name__)
    if batches[0][1].dim() == 1:
        return "cross-entropy"
    note = f"; {batches.label_note}" if batches.label_note else ""
    return f"cross-entropy, summed over the tokens of a sample (label {IGNORED} is not scored){note}"
