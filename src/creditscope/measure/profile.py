"""Depth profile: how much of the task a linear readout finds at each depth, in the network and in its twin.

For the raw input and h_0..h_L: ridge regression of centred one-hot labels on the state, fitted in closed form on one set of
samples and scored on another. The *twin* is the same network with its blocks re-initialised and its embedding kept. Profile
margin = accuracy of the readout of h_L minus that of the twin's h_L: an estimate of the depth margin without training.

Each state goes through a LayerNorm without gain and eps per sample (a constant state gives zeros), its columns are centred by
the means of the fit data. Only the sums XᵀX [d, d] and XᵀY [d, C] are kept, in float64; the strength is chosen by generalised
cross-validation from one eigen-factorisation of XᵀX. One pass over the data per network.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.errors import CreditscopeError, with_article
from creditscope.measure.binomial import Z_95, paired, wilson
from creditscope.measure.facts import DepthProfile, Paired, Readout
from creditscope.measure.proof import own_states
from creditscope.stream.batches import Batches, SampleHash, as_batches, few_samples, tensors_of
from creditscope.stream.eager import original
from creditscope.stream.interface import Stream, make_stream
from creditscope.stream.labels import IGNORED, NEXT
from creditscope.stream.twins import KEEP, frozen_blocks
from creditscope.stream.untouched import generators_kept, untouched

MAX_WIDTH = 1024
"""Images and token sequences of more numbers per sample are averaged down to at most as many; XᵀX has the square of it."""
TOKENS = 16
"""Scored tokens that are drawn from each sequence of a language model."""
STRENGTHS = 10.0 ** (np.arange(-24, 9) / 4)
"""Ridge strengths over the largest eigenvalue of XᵀX: 1e-6 to 100, four per decade."""
GIVEN = "given"
"""The twin is the caller's own."""
AT_ONCE = 4
"""Batches that are held in memory at a time."""


def depth_profile(
    model: nn.Module,
    fit_batches: Iterable[Any],
    test_batches: Iterable[Any],
    blocks: Any = None,
    *,
    read: str | None = None,
    max_width: int = MAX_WIDTH,
    tokens: int = TOKENS,
    seed: int = 0,
    rest: str = KEEP,
    init: Callable[[nn.Module], None] | None = None,
    build: Callable[[], nn.Module] | None = None,
    forward_kwargs: Mapping[str, Any] | None = None,
    shift_labels: bool | None = None,
) -> DepthProfile:
    """Fit a linear readout of every h_l on `fit_batches`, score it on `test_batches`; the same for the network's twin.

    fit_batches, test_batches: batches as for `diagnose`, of disjoint samples; read once, a few at a time. Thousands of
        samples to fit (the training data) and to test are advised. Labels are classes, or classes per token.
    blocks, read, forward_kwargs, shift_labels: as for `diagnose`.
    max_width: states and inputs [C, H, W] or [T, d] that would be flattened to more numbers are averaged over space; a raw
        input that is a longer vector is left out. What was done is in `notes`.
    tokens: how many scored tokens are drawn from each sequence of a language model.
    seed, rest, init, build: how the twin's blocks start, as for `frozen_blocks`; rest="fresh" redraws its embedding too.

    The model, its gradients, modes and every RNG are left as found, also after an error.
    """
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
    for name, value in (("max_width", max_width), ("tokens", tokens)):
        if type(value) is not int or value < 1:
            raise CreditscopeError(f"{name} is {value!r}; give a whole number from 1")
    model = original(model)
    with untouched(model, reads=fit_batches), untouched(model, reads=test_batches):
        fit = _Source(model, fit_batches, "fit_batches", forward_kwargs, shift_labels)
        inputs, y = fit.first
        example, _ = few_samples(model, inputs, len(y))
        stream = make_stream(model, inputs, len(y), blocks, read)
        own_states(stream, example)  # refuses a model that is random in eval mode
    with generators_kept(model):
        names = list(dict.fromkeys(stream.names)) or None
        twin = frozen_blocks(model, names, rest=rest, seed=seed, init=init, build=build)
    with (
        untouched(model, reads=fit_batches),
        untouched(model, reads=test_batches),
        untouched(twin),
        torch.no_grad(),
    ):
        reader = _Reader(stream, max_width, tokens)
        networks = _Networks(stream, stream.on(twin, example), reader, shared=rest == KEEP)
        return _fitted(
            networks,
            reader,
            fit,
            lambda: _Source(model, test_batches, "test_batches", forward_kwargs, fit.shift),
            reader.refuses(inputs),
            seed,
            rest,
        )


class States(NamedTuple):
    """A batch whose states are known already."""

    x: Tensor | None
    """The raw input, where it is known."""
    h: list[Tensor]
    """Native h_0..h_L."""
    twin: list[Tensor] | None
    """Those of the twin, where they are known."""


def profile_of_states(
    stream: Stream,
    fit: Iterable[tuple[States, Tensor]],
    test: Iterable[tuple[States, Tensor]],
    *,
    max_width: int = MAX_WIDTH,
) -> DepthProfile:
    """The depth profile of recorded states (arrays from another framework); `stream` says how they are read."""
    with torch.no_grad():
        reader = _Reader(stream, max_width, TOKENS)
        first, held = _Read(iter(fit)), _Read(iter(test))
        known, other = first.first[0], held.first[0]
        for name in ("x", "twin"):
            if (getattr(known, name) is None) != (getattr(other, name) is None):
                raise CreditscopeError(
                    f"{name!r} is given for the fit data or the test data alone; give it for both, or for neither"
                )
        why = "the raw input was not given" if known.x is None else reader.refuses(known.x)
        if known.twin is None:
            reader.notes["the states of the twin were not given"] = None
        return _fitted(_Known(stream.depth, reader), reader, first, lambda: held, why, 0, GIVEN)


# ---- two passes over the data --------------------------------------------------------------------------------------


def _fitted(
    networks: _Networks | _Known,
    reader: _Reader,
    fit: _Read,
    make_test: Callable[[], _Read],
    raw_reason: str,
    seed: int,
    rest: str,
) -> DepthProfile:
    """Fit every readout, then score it; call without gradients."""
    classes = _Classes()
    raw = None if raw_reason else _Layer()

    def run(
        batches: _Read, columns_of: Callable[[Tensor], Tensor], use: Callable[[_Layer, Tensor, Tensor], None]
    ) -> None:
        for inputs, y in batches:
            rows = reader.rows(y)
            columns = columns_of(rows.labels)
            if raw is not None:
                use(raw, reader.raw(inputs), columns)
            networks.run(inputs, rows, columns, use)

    run(fit, classes.add, _Layer.fit)
    for layer in {id(x): x for x in (*networks.own, *networks.twin, *([raw] if raw else []))}.values():
        layer.solve(classes)
    test = make_test()
    run(test, classes.known, _Layer.score)
    _require_apart(fit, test, classes)
    return _profile(networks, raw, reader, raw_reason, fit, test, sum(classes.counts), seed, rest)


# ---- closed form ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solution:
    """scores = x @ weights + offset; the label is the largest."""

    weights: Tensor
    """[d, C]"""
    offset: Tensor
    """[C]"""
    strength: float | None
    """Over the largest eigenvalue; None: the state is the same for every sample, and the most frequent label is given."""


class Ridge:
    """The sums of a ridge regression of centred one-hots on centred columns, and its solution."""

    def __init__(self) -> None:
        self.n = 0
        self.shift: Tensor | None = None
        """[d], of the first rows: states of a stream that explodes are alike but for a little, and are squared without it."""

    def add(self, x: Tensor, columns: Tensor, shifted: bool = False) -> None:
        """x: float64 [n, d], used up; columns: the class of each row; shifted: `shift` is taken off x already."""
        from scipy.linalg import blas  # here: it takes its time to load

        if self.shift is None:
            self.shift = x.mean(0)
            self._gram = x.new_zeros(x.shape[1], x.shape[1])  # its lower triangle
            self._cross = x.new_zeros(0, x.shape[1])
        if not shifted:
            x.sub_(self.shift)
        missing = int(columns.max()) + 1 - len(self._cross) if len(columns) else 0
        if missing > 0:
            self._cross = torch.cat([self._cross, x.new_zeros(missing, x.shape[1])])
        self._cross.index_add_(0, columns, x)
        if x.device.type == "cpu" and len(x):  # half of a product, added in place: 0.5 of torch's time, 0.87 of numpy's
            blas.dsyrk(1.0, x.contiguous().numpy().T, beta=1.0, c=self._gram.numpy().T, overwrite_c=1)
        else:
            self._gram.addmm_(x.T, x)
        self.n += len(x)

    @property
    def finite(self) -> bool:
        """Was every row? Of one number that is not finite comes a square that is none."""
        return not self.n or bool(self._gram.diagonal().sum().isfinite())

    def solve(self, counts: Tensor) -> Solution:
        """counts: rows of each class, float64 [C]. The sums are used up."""
        assert self.shift is not None
        counts = counts.to(self._gram)
        n, mean, share = self.n, self._cross.sum(0) / self.n, counts / self.n  # each row has one class
        cross = torch.cat([self._cross, self._cross.new_zeros(len(counts) - len(self._cross), len(mean))]).T
        values, vectors = torch.linalg.eigh(self._gram.addr_(mean, mean, alpha=-n))
        values = values.clamp(min=0)
        rotated = vectors.T @ (cross - torch.outer(mean, counts))
        largest = float(values[-1])
        if largest <= n * len(mean) * torch.finfo(torch.float64).eps ** 2:
            return Solution(torch.zeros_like(cross), share, None)
        strength = _by_cross_validation(values / largest, rotated.square().sum(1) / largest, n - n * share @ share, n)
        weights = vectors @ (rotated / (values + strength * largest).unsqueeze(1))
        return Solution(weights, share - (self.shift + mean) @ weights, strength)


def _by_cross_validation(values: Tensor, squares: Tensor, total: Tensor, n: int) -> float:
    """The strength with the least RSS / (n - 1 - df)²: Golub, Heath and Wahba's, the intercept being one more parameter.

    values: eigenvalues over the largest one; squares: ‖projection of XᵀY on each eigenvector‖² over the largest eigenvalue;
    total: ‖Y‖² of the centred one-hots.
    """
    strength = torch.from_numpy(STRENGTHS).to(values).unsqueeze(1)
    shrunk = values + strength
    residual = total - (squares * (shrunk + strength) / shrunk.square()).sum(1)
    free = n - 1 - (values / shrunk).sum(1)
    score = residual.clamp(min=0) / free.square()
    score[free <= 0] = math.inf
    best = int(score.flip(0).argmin())  # of equal ones the strongest
    return float(STRENGTHS[len(STRENGTHS) - 1 - best])


def normalised(h: Tensor, shift: Tensor | None = None) -> Tensor:
    """[n, d] -> float64, each row with mean 0 and mean square 1; zeros where a row is constant up to its own rounding.

    shift: [d], taken off every row in the same go.
    """
    d = h.shape[1]
    wide = h.double()
    if h.dtype == torch.float64:  # squares may overflow, or vanish
        wide = wide / wide.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    bias = wide.new_zeros(d) if shift is None else -shift  # with one, torch's norm is the faster
    x, mean, inverse = torch.native_layer_norm(wide, (d,), None, bias, 0.0)  # inverse: 1 over the standard deviation
    deviation, rounding = inverse.reciprocal(), 4 * torch.finfo(h.dtype).eps
    if bool((deviation > rounding * (mean.abs() + math.sqrt(d) * deviation)).all()):
        return x  # no number of a row is further from its mean than sqrt(d) deviations
    constant = deviation <= rounding * wide.abs().amax(1, keepdim=True)
    return torch.where(constant, bias, x) if bool(constant.any()) else x


# ---- reading -------------------------------------------------------------------------------------------------------


class _Read:
    """Batches (inputs or states, y) that are read once, with their number and hash."""

    def __init__(self, batches: Iterator[tuple[Any, Tensor]]) -> None:
        self.n = 0
        self._hash = SampleHash()
        self.first, self._others = next(batches), batches

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        for given, y in itertools.chain([self.first], self._others):
            self.n += len(y)
            inputs = given
            if isinstance(given, States):
                inputs = given.h[0] if given.x is None else given.x
            self._hash.add(inputs, y)
            yield given, y

    @property
    def samples(self) -> str:
        return str(self._hash)


class _Source(_Read):
    """The batches of one argument, a few at a time."""

    def __init__(self, model: nn.Module, batches: Any, name: str, kwargs: Any, shift: bool | None) -> None:
        self._model, self._kwargs, self.shift = model, kwargs, shift
        try:
            chunks = [batches] if isinstance(batches, Batches) else self._prepared(iter(batches))
        except TypeError:
            raise CreditscopeError(
                f"{name} is {with_article(batches)}; give a list of (x, y) batches or a DataLoader"
            ) from None
        try:
            super().__init__(itertools.chain.from_iterable(chunks))
        except StopIteration:
            raise CreditscopeError(f"{name} is empty; give batches of (x, y)") from None

    def _prepared(self, items: Iterator[Any]) -> Iterator[Batches]:
        while chunk := list(itertools.islice(items, AT_ONCE)):
            found = as_batches(self._model, chunk, self._kwargs, shift_labels=self.shift)
            if found.label_note:  # how the model reads its labels is asked once
                self.shift = found.label_note.startswith(NEXT)
            yield found


@dataclass(frozen=True)
class _Rows:
    """The labels that are fitted or scored, and where they stand: None for one per sample, else (samples, tokens)."""

    labels: Tensor
    where: tuple[Tensor, Tensor] | None = None


class _Reader:
    """How a native state becomes rows."""

    def __init__(self, stream: Stream, max_width: int, tokens: int) -> None:
        self.stream, self.max_width, self.tokens = stream, max_width, tokens
        self.notes: dict[str, None] = {}
        self._draws = torch.Generator().manual_seed(0)

    def rows(self, y: Tensor) -> _Rows:
        if y.is_floating_point() or y.dtype == torch.bool:
            raise CreditscopeError(f"labels have dtype {y.dtype}; a depth profile needs integer class indices")
        if y.dim() == 1:
            if bool((y < 0).any()):
                raise CreditscopeError(f"label {int(y.min())} is not a class; give class indices from 0")
            return _Rows(y)
        if y.dim() != 2 or not self.stream.scores_tokens:
            raise CreditscopeError(
                f"labels have shape {list(y.shape)}; a depth profile needs one class per sample, or one per token of a model "
                "with logits [B, T, C] and states [B, T, d]"
            )
        # scored tokens first, in random order
        order = torch.rand(y.shape, generator=self._draws).to(y.device).masked_fill_(y == IGNORED, 2)
        order = order.argsort(1)[:, : self.tokens].sort(1).values
        sample = torch.arange(len(y), device=y.device).unsqueeze(1).expand_as(order)
        scored = y.gather(1, order) != IGNORED
        if y.shape[1] > self.tokens:
            self.notes[f"{self.tokens} scored tokens drawn from each sequence"] = None
        where = sample[scored], order[scored]
        return _Rows(y[where], where)

    def state(self, layer: int, h: Tensor, rows: _Rows) -> Tensor:
        """Native h_l -> [rows, d]."""
        h = h.detach()
        if rows.where is not None:
            h = h.transpose(0, 1) if self.stream.batch_dim else h
            return h[rows.where]
        if self.stream.widths[layer] > self.max_width and len(self.stream.shapes[layer]) > 1:  # a vector stays as it is
            return self._averaged(h.transpose(0, 1) if self.stream.batch_dim else h, f"h_{layer}")
        return self.stream.read_state(h)

    def refuses(self, inputs: Any) -> str:
        """Why the raw input is not read; "" where it is."""
        found = tensors_of(inputs)
        if self.stream.scores_tokens:
            return "labels of tokens"
        if len(found) != 1:
            return f"the inputs are {len(found)} tensors"
        if not found[0].is_floating_point():
            return f"the input is {str(found[0].dtype).removeprefix('torch.')}, no vector"
        if found[0].dim() == 2 and found[0].shape[1] > self.max_width:
            return f"it has {found[0].shape[1]:,} numbers per sample, more than max_width = {self.max_width:,}"
        return ""

    def raw(self, inputs: Any) -> Tensor:
        x = tensors_of(inputs.x if isinstance(inputs, States) else inputs)[0].detach()
        if x.dim() > 2 and x[0].numel() > self.max_width:
            return self._averaged(x, "the raw input")
        return x.flatten(1)

    def _averaged(self, h: Tensor, what: str) -> Tensor:
        """[B, C, H, W] over windows of an even grid, [B, T, d] over all tokens; flattened."""
        if h.dim() == 3:
            self.notes[f"{what} averaged over its {h.shape[1]} tokens"] = None
            return h.mean(1)
        if h.dim() != 4:
            raise CreditscopeError(
                f"{what} has shape {list(h.shape[1:])}, {h[0].numel():,} numbers per sample; raise max_width ({self.max_width})"
            )
        if h.shape[1] == h.shape[2] != h.shape[3]:  # channels last
            h = h.permute(0, 3, 1, 2)
        most = max(1, min(math.isqrt(self.max_width // h.shape[1]), *h.shape[2:]))
        side = next((k for k in range(most, most // 2, -1) if not (h.shape[2] % k or h.shape[3] % k)), most)
        self.notes[f"{what} averaged over space: {h.shape[2]} x {h.shape[3]} to {side} x {side}"] = None
        if h.shape[2] % side or h.shape[3] % side:
            return F.adaptive_avg_pool2d(h, side).flatten(1)
        high, wide = h.shape[2] // side, h.shape[3] // side
        h = reduce(torch.add, [h[:, :, k::high] for k in range(high)])  # more than ten times as fast as torch's pooling
        h = reduce(torch.add, [h[:, :, :, k::wide] for k in range(wide)])
        return (h / (high * wide)).flatten(1)


class _Classes:
    """Labels as columns, in the order in which they appear.

    A class that the fit data do not have needs no column: its one-hot is zero throughout, its score is 0, and the scores of
    the others sum to 1.
    """

    def __init__(self) -> None:
        self._column: dict[int, int] = {}
        self.counts: list[int] = []
        self.met = False

    def add(self, labels: Tensor) -> Tensor:
        values, which, counts = labels.unique(return_inverse=True, return_counts=True)
        columns = [self._column.setdefault(value, len(self._column)) for value in values.tolist()]
        self.counts += [0] * (len(self._column) - len(self.counts))
        for column, count in zip(columns, counts.tolist(), strict=True):
            self.counts[column] += count
        return torch.tensor(columns, dtype=torch.long, device=labels.device)[which]

    def known(self, labels: Tensor) -> Tensor:
        """-1 for a class that was not fitted."""
        values, which = labels.unique(return_inverse=True)
        columns = torch.tensor(
            [self._column.get(value, -1) for value in values.tolist()], dtype=torch.long, device=labels.device
        )
        self.met = self.met or bool((columns >= 0).any())
        return columns[which]


class _Layer:
    """The readout of one state: fitted, then scored."""

    def __init__(self) -> None:
        self.ridge = Ridge()
        self.finite = True
        self.solution: Solution | None = None
        self.width = 0
        self._right: list[Tensor] = []

    def fit(self, h: Tensor, columns: Tensor) -> None:
        shift = self.ridge.shift
        x = self._rows(h, shift)
        if len(x):
            self.ridge.add(x, columns, shifted=shift is not None)

    def solve(self, classes: _Classes) -> None:
        self.finite = self.ridge.finite
        if self.finite and self.ridge.n:
            self.solution = self.ridge.solve(torch.tensor(classes.counts, dtype=torch.float64))
        self.ridge = Ridge()  # its sums are not needed any more

    def score(self, h: Tensor, columns: Tensor) -> None:
        x = self._rows(h)
        if self.finite and self.solution is not None:
            # twice as fast as the other way round
            scores = self.solution.weights.T @ x.T + self.solution.offset.unsqueeze(1)
            self.finite = bool(scores.sum().isfinite())
            self._right.append((scores.argmax(0) == columns).cpu())

    def _rows(self, h: Tensor, shift: Tensor | None = None) -> Tensor:
        if self.width and h.shape[1] != self.width:
            raise CreditscopeError(
                f"a state has {h.shape[1]} numbers per sample in one batch and {self.width} in the first; give batches of one "
                "shape (pad sequences to one length)"
            )
        self.width = h.shape[1]
        return normalised(h, shift)

    @property
    def right(self) -> Tensor | None:
        """Per row: is the answer right? None where the state is not finite."""
        return torch.cat(self._right) if self.finite and self.solution is not None else None


class _Networks:
    """The network and its twin, run side by side on each batch."""

    def __init__(self, stream: Stream, twin: Stream, reader: _Reader, shared: bool) -> None:
        self._streams, self._reader, self._shared = (stream, twin), reader, shared
        self.own = [_Layer() for _ in range(stream.depth + 1)]
        self.twin = [self.own[0] if shared and not k else _Layer() for k in range(stream.depth + 1)]

    def run(self, inputs: Any, rows: _Rows, columns: Tensor, use: Callable[[_Layer, Tensor, Tensor], None]) -> None:
        """Hands each state of each network to `use`, once; h_0 is one state where they share the embedding."""
        first: list[Tensor] = []
        last: list[Tensor] = []

        def own(layer: int, value: Tensor, handle: Tensor) -> None:
            if layer == 0 and self._shared:
                first.append(value.detach())
            if layer == self._streams[0].depth and value.dim() == 3 and rows.where is None:
                last.append(value.detach())
            use(self.own[layer], self._reader.state(layer, value, rows), columns)

        def twin(layer: int, value: Tensor, handle: Tensor) -> None:
            if layer or not self._shared:
                use(self.twin[layer], self._reader.state(layer, value, rows), columns)

        stream, other = self._streams
        stream.forward(inputs, own)
        if last and stream.read in ("cls", "last"):
            _require_read(stream, last[0], inputs)
        if self._shared:
            other.forward_from(first[0], inputs, twin)
        else:
            other.forward(inputs, twin)


def _require_read(stream: Stream, h: Tensor, inputs: Any) -> None:
    """The first samples told which token the head reads; it must be that one in every sample."""
    with torch.enable_grad(), stream.graph():
        h = h.clone().requires_grad_()
        (g,) = torch.autograd.grad(stream.logits_from(stream.depth, h, inputs).square().sum(), h)
    stream.require_read(g)


class _Known:
    """The states of the network and of its twin as they were recorded."""

    def __init__(self, depth: int, reader: _Reader) -> None:
        self._reader = reader
        self.own, self.twin = ([_Layer() for _ in range(depth + 1)] for _ in range(2))

    def run(self, states: States, rows: _Rows, columns: Tensor, use: Callable[[_Layer, Tensor, Tensor], None]) -> None:
        for layers, hiddens in ((self.own, states.h), (self.twin, states.twin or [])):
            for k, h in enumerate(hiddens):
                use(layers[k], self._reader.state(k, h, rows), columns)


# ---- result --------------------------------------------------------------------------------------------------------


def _require_apart(fit: _Read, test: _Read, classes: _Classes) -> None:
    if fit.samples == test.samples:
        raise CreditscopeError("fit_batches holds the samples that the readouts are tested on; give other ones")
    if not classes.met:
        raise CreditscopeError(
            "fit_batches has no label in common with the samples that the readouts are tested on; give data of one task"
        )


def _profile(
    networks: _Networks | _Known,
    raw: _Layer | None,
    reader: _Reader,
    raw_reason: str,
    fit: _Read,
    test: _Read,
    fit_rows: int,
    seed: int,
    rest: str,
) -> DepthProfile:
    own, twin, n = networks.own, networks.twin, test.n
    z = NormalDist().inv_cdf(1 - 0.025 / (len(own) - 1))
    steps = [_difference(after, before, n, z) for before, after in itertools.pairwise(own)]
    rows = next((len(r) for r in (layer.right for layer in (*own, *twin)) if r is not None), 0)
    return DepthProfile(
        raw=None if raw is None else _readout(raw, n),
        raw_reason=raw_reason,
        curve=tuple(_readout(layer, n) for layer in own),
        twin=tuple(_readout(layer, n) for layer in twin),
        margin=_difference(own[-1], twin[-1], n),
        steps=tuple(steps),
        first_loss=next((k for k, step in enumerate(steps) if step is not None and step.high_pp < 0), None),
        n_fit=fit.n,
        n_test=n,
        fit_rows=fit_rows,
        test_rows=rows,
        fit_samples=fit.samples,
        test_samples=test.samples,
        seed=seed,
        rest=rest,
        notes=(*reader.notes, *_at_the_edge(own)),
    )


def _at_the_edge(layers: Sequence[_Layer]) -> list[str]:
    """A readout that would be fitted more closely if the grid of strengths went on."""
    found = [f"h_{k}" for k, layer in enumerate(layers) if layer.solution and layer.solution.strength == STRENGTHS[0]]
    if not found:
        return []
    return [
        f"{', '.join(found)} took the least strength of the grid, {STRENGTHS[0]:g}: a smaller one may read out more"
    ]


def _readout(layer: _Layer, n: int) -> Readout:
    right = layer.right
    if right is None or layer.solution is None:
        return Readout(accuracy=None, low=None, high=None, width=layer.width, strength=None)
    accuracy = float(right.double().mean())
    low, high = wilson(accuracy, n)
    return Readout(accuracy=accuracy, low=low, high=high, width=layer.width, strength=layer.solution.strength)


def _difference(a: _Layer, b: _Layer, n: int, z: float = Z_95) -> Paired | None:
    """Accuracy of `a` minus that of `b`; n: independent samples behind the rows."""
    if (mine := a.right) is None or (theirs := b.right) is None:
        return None
    gained, lost = (float(only.double().mean()) for only in (mine & ~theirs, theirs & ~mine))
    low, high = paired(gained, lost, n, z)
    return Paired(pp=round(100 * (gained - lost), 9), low_pp=100 * low, high_pp=100 * high)
