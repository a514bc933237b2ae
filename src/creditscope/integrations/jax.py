"""Networks written in JAX (Flax, Equinox, plain functions): states by their own code, g by `jax.vjp`, the usual report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from creditscope import CreditscopeError, DiagnosticReport, DiagnosticThresholds, diagnose_arrays
from creditscope.errors import with_article
from creditscope.integrations.base import require

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from creditscope.arrays import Claims

jax: Any = require("jax", "jax")


class Blocks(NamedTuple):
    """A network in three parts; each takes the parameters first, and a batch."""

    embed: Callable[[Any, Any], Any]
    """(params, x) -> h_0"""
    blocks: Sequence[Callable[[Any, Any], Any]]
    """(params, h_l) -> h_{l+1}, the whole step: with the skip connection, where there is one"""
    readout: Callable[[Any, Any], Any]
    """(params, h_L) -> logits"""


def cross_entropy(logits: Any, y: Any) -> Any:
    """Per-sample cross-entropy [B]."""
    return -jax.numpy.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)[:, 0]


def diagnose(
    apply_blocks: Blocks | tuple[Any, Any, Any],
    params: Any,
    batches: Iterable[tuple[Any, Any]],
    *,
    credit: Callable[[list[Any], Any, Any, Any], Sequence[Any]] | None = None,
    model: Callable[[Any, Any], Any] | None = None,
    loss_fn: Callable[[Any, Any], Any] | None = None,
    kind: str = "residual",
    read: str | None = None,
    mode: str = "unstated",
    checkpoint: str = "final",
    trained_layers: Sequence[int] | None = None,
    exact_layers: Sequence[int] = (),
    level: str = "basic",
    fit_batches: Iterable[tuple[Any, Any]] | None = None,
    twin: Any = None,
    float64: bool = True,
    thresholds: DiagnosticThresholds | None = None,
    **claims: Unpack[Claims],
) -> DiagnosticReport:
    """Measure a JAX network on `batches` and judge it, as `creditscope.diagnose` does.

    apply_blocks: `Blocks(embed, blocks, readout)`, or a tuple of the three.
    params: any pytree; of Equinox the module itself, of Flax the variables.
    batches: pairs (x, y) of arrays; x may be a pytree.
    credit: (hiddens, logits, y, x) -> [a_0, ..., a_L], None in place of an a_l that the method does not have.
    model: (params, x) -> logits, the network's own forward pass: the three parts are held against it on every batch.
    loss_fn: (logits, y) -> loss per sample; cross-entropy if None.
    level: "full" adds the perturbation correlation and nudging.
    fit_batches: samples that are not in `batches`: adds the depth profile. twin: params whose blocks are redrawn and whose
        embedding is kept, for the profile's margin; None leaves the margin unmeasured.
    float64: run finite differences, ρ and nudging on a float64 copy of the parameters; False where the network has a coarser
        dtype written into its code (they are then as coarse as that).
    The others: as for `diagnose_arrays` and `creditscope.diagnose`.
    """
    network = _Network(apply_blocks, params, loss_fn or cross_entropy, credit, model)
    profiled = fit_batches is not None
    other = None if twin is None or not profiled else network.of(twin)
    return diagnose_arrays(
        network.batches(batches, other if profiled else None),
        reduction="sum",
        kind=kind,
        read=read,
        loss="cross-entropy" if loss_fn is None else getattr(loss_fn, "__name__", type(loss_fn).__name__),
        mode=mode,
        checkpoint=checkpoint,
        trained_layers=trained_layers,
        exact_layers=exact_layers,
        loss_from=network.loss_from if float64 else network.own_loss_from,
        level=level,
        fit_batches=None if fit_batches is None else network.states_of(fit_batches, other),
        thresholds=thresholds,
        **claims,
    )


class _Network:
    def __init__(self, apply_blocks: Any, params: Any, loss_fn: Any, credit: Any, model: Any) -> None:
        try:
            self.parts = Blocks(*apply_blocks)
            self.blocks = list(self.parts.blocks)
        except TypeError:
            raise CreditscopeError(
                f"apply_blocks is {with_article(apply_blocks)}; give Blocks(embed, blocks, readout) with a list of blocks"
            ) from None
        parts: dict[str, Any] = {"embed": self.parts.embed, "readout": self.parts.readout}
        parts |= {f"block {k}": block for k, block in enumerate(self.blocks)}
        wrong = [f"{type(part).__name__} as {name}" for name, part in parts.items() if not callable(part)]
        if wrong or not self.blocks:
            raise CreditscopeError(
                f"apply_blocks has {wrong[0] if wrong else 'no blocks'}; give embed, one block or more, and readout, each a "
                "function (params, h)"
            )
        self.depth = len(self.blocks)
        self.loss_fn, self.credit, self.model = loss_fn, credit, model
        leaves, self._tree = jax.tree_util.tree_flatten(params)
        self._moving = [hasattr(leaf, "dtype") and hasattr(leaf, "shape") for leaf in leaves]
        self._fixed = [None if moves else leaf for leaf, moves in zip(leaves, self._moving, strict=True)]
        self.arrays = self._arrays(leaves)
        self._states = jax.jit(self._run)
        self._all = jax.jit(self._differentiated)
        self._from = jax.jit(self._losses, static_argnums=0)
        self._doubled: Any = None

    def _arrays(self, leaves: list[Any]) -> list[Any]:
        return [leaf for leaf, moves in zip(leaves, self._moving, strict=True) if moves]

    def of(self, params: Any) -> list[Any]:
        """The arrays of other parameters of the same network."""
        leaves, tree = jax.tree_util.tree_flatten(params)
        if tree != self._tree:
            raise CreditscopeError(
                f"twin has the structure {_clipped(tree)}, params {_clipped(self._tree)}; give the same pytree with redrawn "
                "blocks"
            )
        arrays = self._arrays(leaves)
        for ours, theirs in zip(self.arrays, arrays, strict=True):
            if np.shape(ours) != np.shape(theirs):
                raise CreditscopeError(
                    f"twin has an array of shape {list(np.shape(theirs))} where params has {list(np.shape(ours))}; give the same "
                    "network with redrawn blocks"
                )
        return arrays

    def _params(self, arrays: list[Any]) -> Any:
        """Leaves that are no arrays (the activation functions of Equinox) stay as they are."""
        moving = iter(arrays)
        leaves = [next(moving) if moves else fixed for moves, fixed in zip(self._moving, self._fixed, strict=True)]
        return jax.tree_util.tree_unflatten(self._tree, leaves)

    def _run(self, arrays: list[Any], x: Any) -> list[Any]:
        params = self._params(arrays)
        states = [self.parts.embed(params, x)]
        for block in self.blocks:
            states.append(block(params, states[-1]))
        return states

    def _differentiated(self, arrays: list[Any], x: Any, y: Any) -> tuple[list[Any], list[Any], Any, Any]:
        """(h, g, logits, losses); g of each sample's own loss."""
        params, states = self._params(arrays), self._run(arrays, x)

        def top(h: Any) -> tuple[Any, Any]:
            logits = self.parts.readout(params, h)
            return self.loss_fn(logits, y), logits

        losses, back, logits = jax.vjp(top, states[-1], has_aux=True)
        (g,) = back(jax.numpy.ones_like(losses))
        gs = [g]
        for block, h in zip(reversed(self.blocks), reversed(states[:-1]), strict=True):
            _, back = jax.vjp(lambda h, block=block: block(params, h), h)
            (g,) = back(g)
            gs.insert(0, g)
        return states, gs, logits, losses

    def _losses(self, layer: int, arrays: list[Any], h: Any, y: Any) -> Any:
        params = self._params(arrays)
        for block in self.blocks[layer:]:
            h = block(params, h)
        return self.loss_fn(self.parts.readout(params, h), y)

    def loss_from(self, layer: int, h: Any, y: Any) -> Any:
        """On a float64 copy of the parameters."""
        with _float64():
            if self._doubled is None:
                self._doubled = [np.asarray(a, dtype=np.float64) if _is_real(a) else a for a in self.arrays]
            return np.asarray(self._from(layer, self._doubled, h, y))

    def own_loss_from(self, layer: int, h: Any, y: Any) -> Any:
        like = next((a.dtype for a in self.arrays if _is_real(a)), np.dtype(np.float32))
        return np.asarray(self._from(layer, self.arrays, jax.numpy.asarray(h, dtype=like), y), dtype=np.float32)

    def batches(self, batches: Iterable[tuple[Any, Any]], twin: list[Any] | None) -> Iterator[dict[str, Any]]:
        for x, y in _pairs(batches, "batches"):
            if self.loss_fn is cross_entropy and (y.ndim != 1 or y.dtype.kind not in "iu"):
                raise CreditscopeError(
                    f"labels are {y.dtype} of shape {list(y.shape)}; give integer class indices [B], or pass loss_fn"
                )
            states, g, logits, losses = self._all(self.arrays, x, y)
            self._compare(x, logits)
            if losses.shape != (len(y),):
                raise CreditscopeError(
                    f"the loss has shape {list(losses.shape)} for {len(y)} samples; loss_fn must return one loss per sample"
                )
            batch = {"h": states, "g": g, "logits": logits, "labels": y, "losses": losses}
            if self.credit is not None:
                batch["a"] = self.credit(states, logits, y, x)
                if batch["a"] is None:
                    raise CreditscopeError(
                        "credit returned None; return [a_0, ..., a_L], with None for a layer that gets no credit"
                    )
            yield self._with(batch, x, twin)

    def states_of(self, batches: Iterable[tuple[Any, Any]], twin: list[Any] | None) -> Iterator[dict[str, Any]]:
        for x, y in _pairs(batches, "fit_batches"):
            yield self._with({"h": self._states(self.arrays, x), "labels": y}, x, twin)

    def _with(self, batch: dict[str, Any], x: Any, twin: list[Any] | None) -> dict[str, Any]:
        if hasattr(x, "dtype"):
            batch["x"] = x
        if twin is not None:
            batch["twin"] = self._states(twin, x)
        return batch

    def _compare(self, x: Any, logits: Any) -> None:
        if self.model is None:
            return
        own, ours = (np.asarray(t, dtype=np.float64) for t in (self.model(self._params(self.arrays), x), logits))
        if own.shape == ours.shape:
            off = np.abs(ours - own).max() / max(np.abs(own).max(), 1e-300)
            if off <= (1e-8 if logits.dtype == np.float64 else 1e-4):
                return
            how = f"relative difference {off:.2g}"
        else:
            how = f"shape {list(ours.shape)} where the model has {list(own.shape)}"
        raise CreditscopeError(
            f"embed, blocks and readout do not give the model's own logits ({how}); together they must be the whole network"
        )


def _clipped(tree: Any) -> str:
    """The structure of a pytree on one line."""
    text = " ".join(str(tree).split())
    return text if len(text) <= 80 else text[:79] + "…"


def _float64() -> Any:
    """A context in which JAX computes in float64; it moved in version 0.8."""
    home = jax if hasattr(jax, "enable_x64") else require("jax.experimental", "jax")
    return home.enable_x64(True)


def _is_real(a: Any) -> bool:
    return bool(jax.numpy.issubdtype(a.dtype, jax.numpy.floating))


def _pairs(batches: Any, name: str) -> Iterator[tuple[Any, Any]]:
    try:
        items = iter(batches)
    except TypeError:
        raise CreditscopeError(f"{name} is {with_article(batches)}; give pairs (x, y) of arrays") from None
    for item in items:
        if not isinstance(item, tuple | list) or len(item) != 2:
            many = f" of {len(item)}" if isinstance(item, tuple | list) else ""
            raise CreditscopeError(f"{name} yields a {type(item).__name__}{many}; give pairs (x, y) of arrays")
        x, y = jax.tree_util.tree_map(np.asarray, item[0]), np.asarray(item[1])
        if not y.ndim or (isinstance(x, np.ndarray) and x.shape[:1] != y.shape[:1]):
            raise CreditscopeError(
                f"{name} yields labels of shape {list(y.shape)} for inputs of shape {list(np.shape(x))}; give one row per sample"
            )
        yield x, y
