"""The evaluation batches, whatever form a loader gives them, as (inputs, labels); and the call of a model on such inputs."""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from creditscope.errors import CreditscopeError, with_article
from creditscope.stream.labels import (
    AS_GIVEN,
    IGNORED,
    NEXT,
    SAY,
    Losses,
    is_clear,
    is_shifted,
    losses,
    next_labels,
    samples_to_ask,
)
from creditscope.stream.labels import own_loss as loss_of
from creditscope.stream.ranks import recover
from creditscope.stream.untouched import first_run

LABEL_KEYS = ("labels", "label", "y", "targets", "target")
FEW = 32
"""Two batches smaller than this may share no label by chance."""
DIFFERENT = 8
"""Two batches with at most so many different samples may be equal by chance."""


class Arguments(NamedTuple):
    """Inputs together with extra keyword arguments of the model's forward."""

    inputs: Any
    kwargs: dict[str, Any]


class Batches(list[tuple[Any, Tensor]]):
    """Batches that `as_batches` has prepared: (inputs, y) on the model's device, in its dtype; empty ones left out."""

    label_note: str = ""
    """What was done to the labels; part of the convention."""
    output_note: str = ""
    """Which of the tensors that the model gives back are the logits, where it gives several."""


class SampleHash:
    """A hash of samples: the same whatever the batch boundaries are."""

    def __init__(self) -> None:
        self._inputs, self._labels = hashlib.sha256(), hashlib.sha256()

    def add(self, inputs: Any, y: Tensor) -> None:
        for t in [t for t in (*tensors_of(inputs), y) if _is_dense(t)][:1]:
            self._inputs.update(t.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
        y = y.detach().cpu()
        y = y.double() if y.is_floating_point() else y.to(torch.int64)
        self._labels.update(y.contiguous().numpy())  # type: ignore[arg-type]

    def __str__(self) -> str:
        return hashlib.sha256(self._inputs.digest() + self._labels.digest()).hexdigest()[:16]


class Repeats:
    """Counts samples that are equal to an earlier one, inputs and labels, to the bit."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self.number = 0

    def add(self, inputs: Any, y: Tensor, samples: Iterable[int] | None = None) -> None:
        """samples: those that may be such; None: all."""
        rows = _memory(inputs, y)
        for k in range(len(y)) if samples is None else samples:
            sample = hashlib.sha256(b"".join(row[k].tobytes() for row in rows)).digest() if rows else b""
            self.number += sample in self._seen and bool(rows)
            self._seen.add(sample)


def repeated_samples(batches: Batches) -> int:
    """`Repeats` of batches that are all there: what differs in a few bytes already is no repeat."""
    keys = [key for inputs, y in batches for key in _few_bytes(inputs, y)]
    often = {key for key, number in Counter(keys).items() if number > 1}
    repeats, key = Repeats(), iter(keys)
    for inputs, y in batches if often else ():
        repeats.add(inputs, y, [k for k in range(len(y)) if next(key) in often])
    return repeats.number


def _memory(inputs: Any, y: Tensor) -> list[NDArray[np.uint8]]:
    """[B, bytes] of each tensor of a batch, its labels behind the inputs; nothing where no input has a row for each sample."""
    given = [t for t in tensors_of(inputs) if _is_of_samples(t, len(y))]
    tensors = [t.detach().cpu().resolve_conj().resolve_neg() for t in (*given, y)] if given else []
    return [t.reshape(len(y), t[0].numel()).contiguous().view(torch.uint8).numpy() for t in tensors]


def _few_bytes(inputs: Any, y: Tensor) -> list[bytes]:
    """Of each sample: the first, middle and last bytes of its tensors."""
    parts = [
        row[:, at : at + 8] for row in _memory(inputs, y) for at in (0, row.shape[1] // 2, max(0, row.shape[1] - 8))
    ]
    return [row.tobytes() for row in np.concatenate(parts, 1)] if parts else [b""] * len(y)


def split_batch(item: Any) -> tuple[Any, Tensor]:
    """(x, y) or {"labels": y, ...} -> (inputs, y). Inputs stay as they are: a tensor, a tuple or a mapping."""
    if isinstance(item, Mapping):
        key = next((k for k in LABEL_KEYS if k in item), None)
        if key is None:
            raise CreditscopeError(
                f"a batch has the keys {sorted(map(str, item))} and none is a label; name it one of {', '.join(LABEL_KEYS)}"
            )
        return _tensors({k: v for k, v in item.items() if k != key}), _labels(item[key])
    if isinstance(item, tuple | list) and len(item) == 2:
        # a mapping of any kind (a tokeniser's BatchEncoding) is given to the model as keywords
        inputs = dict(item[0]) if isinstance(item[0], Mapping) else item[0]
        return _tensors(inputs), _labels(item[1])
    what = with_article(item) + (f" of length {len(item)}" if hasattr(item, "__len__") else "")
    lone = " (a single batch goes into a list: [(x, y)])" if isinstance(item, Tensor | np.ndarray) else ""
    raise CreditscopeError(
        f"a batch is {what}; give (x, y) pairs, ((x, more), y) or mappings with a 'labels' entry{lone}"
    )


def _labels(y: Any) -> Tensor:
    try:
        labels = from_numpy(y, "labels") if isinstance(y, np.ndarray) else torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError):
        raise CreditscopeError(
            f"the labels of a batch are a {type(y).__name__} that is not a tensor of numbers; give class indices"
        ) from None
    return labels.long() if labels.dtype in UNSIGNED else labels


def _tensors(inputs: Any) -> Any:
    """numpy arrays as tensors, wherever they stand in the inputs."""
    return tree_map(lambda t: from_numpy(t, "inputs of a batch") if isinstance(t, np.ndarray) else t, inputs)


def from_numpy(array: Any, what: str) -> Tensor:
    """Of any order of its numbers in memory, and of its bytes; one line where torch has no such numbers."""
    try:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape))
    except (TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:120]
        raise CreditscopeError(f"the {what} are an array of {array.dtype}, which torch cannot read: {why}") from None


UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Integers for which torch has no more than their memory."""


def as_batches(
    model: nn.Module,
    eval_batches: Iterable[Any],
    forward_kwargs: Mapping[str, Any] | None = None,
    own_loss: bool = False,
    shift_labels: bool | None = None,
) -> Batches:
    """Read the batches and fit them to the model: device, floating-point dtype, extra arguments, labels of language models.

    forward_kwargs: given to every forward call as they are.
    own_loss: the user brings a loss function, so labels stay as they are.
    shift_labels: True scores token t against label t + 1, False against label t; None asks the model's own loss.
    Call inside `untouched(model)`. Batches prepared before are given back as they are.
    """
    if isinstance(eval_batches, Batches):
        return eval_batches
    if shift_labels not in (None, True, False):
        raise CreditscopeError(f"shift_labels is {shift_labels!r}; give True, False or None")
    if own_loss and shift_labels is not None:
        raise CreditscopeError(
            "shift_labels and loss_fn are both given; loss_fn gets the labels as they are: give one of them"
        )
    device = device_of(model)
    found = Batches()
    for inputs, y in _split(eval_batches):
        if y.dim() == 0:
            raise CreditscopeError("the labels of a batch are a single number; give one label per sample")
        if not len(y):
            continue
        tensors = tensors_of(inputs)
        dense = [t for t in tensors if _is_dense(t)]
        if not dense:
            what = f"{tensors[0].layout} tensors" if tensors else with_article(inputs)
            raise CreditscopeError(
                f"the inputs of a batch are {what}, of which no samples can be taken; give dense tensors: one, a tuple of them "
                "or a mapping"
            )
        if not any(_is_of_samples(t, len(y)) for t in dense):
            raise CreditscopeError(
                f"a batch has {len(y)} labels for inputs of shape {list(dense[0].shape)}; give one label per sample"
            )
        if forward_kwargs:
            inputs = Arguments(inputs, dict(forward_kwargs))
        found.append((_moved(inputs, device), _moved(y, device)))
    if not found:
        why = "it is an iterator that has been used up; give a list or a DataLoader" if _once(eval_batches) else ""
        raise CreditscopeError(
            f"eval_batches is empty; {why or 'give at least one batch (8 disjoint batches of 128 are advised)'}"
        )
    same_labels(found)
    _require_apart(found)
    _fit_dtype(model, found)
    try:
        asks = not own_loss and _asks(model, found, shift_labels)
        shape, found.output_note = (None, "") if asks else require_logits(model, *_first(found))
    except CreditscopeError as error:
        if _look_swapped(*found[0]):
            raise CreditscopeError(f"{error}; are x and y swapped? Give (inputs, labels)") from error
        raise
    if not own_loss:
        _shift_labels(model, found, shift_labels, shape)
    return found


def _look_swapped(inputs: Any, y: Tensor) -> bool:
    """One whole number per sample as input, and labels that are fractions: more likely (labels, inputs)."""
    given = tensors_of(inputs)
    whole = len(given) == 1 and given[0].dim() == 1 and not given[0].is_floating_point()
    return whole and y.is_floating_point()


def _first(batches: Batches) -> tuple[Any, int]:
    inputs, y = batches[0]
    return inputs, len(y)


SAMPLES = 3
"""Samples on which a model is looked at and its stream proved."""
TOKENS = 16
"""Of a language model, on which it is asked how it reads its labels, and seen whether it has changed."""


def few_samples(model: nn.Module, inputs: Any, batch_size: int) -> tuple[Any, int]:
    """(inputs, number) of the first few samples; of the whole batch where the model takes batches of this size only.

    One line where it takes neither. Call inside `untouched(model)`.
    """
    return few_run(model, inputs, batch_size)[:2]


def few_run(model: nn.Module, inputs: Any, batch_size: int) -> tuple[Any, int, Any]:
    """`few_samples`, with what the model gives back for them."""
    few = map_samples(inputs, batch_size, lambda t: t[:SAMPLES])
    try:
        return few, min(SAMPLES, batch_size), run(model, few)
    except CreditscopeError:
        if batch_size <= SAMPLES:
            raise
        return inputs, batch_size, run(model, inputs)


def cannot_run(error: Exception) -> CreditscopeError:
    """One line for what the user's own code raises."""
    why = " ".join((str(error) or type(error).__name__).split())[:240]
    return CreditscopeError(f"the model cannot run on the evaluation batch: {why}")


def run(model: nn.Module, inputs: Any) -> Any:
    """What the model gives back; one line where it does not run."""
    try:
        with torch.no_grad():
            return call_model(model, inputs)
    except Exception as error:  # it is the user's code: anything may come, and it is told as it is
        recover(model)
        raise cannot_run(error) from error


class Answer(NamedTuple):
    """What a model gives back for a few samples."""

    shape: torch.Size
    """Of the logits."""
    note: str
    """Which of several tensors that may be logits is taken for them."""


def require_logits(model: nn.Module, inputs: Any, batch_size: int) -> Answer:
    """Run a few samples: one line where the model does not take them, or gives no logits back."""
    _, n, output = few_run(model, inputs, batch_size)
    logits = logits_of(output)
    if not logits.shape:
        raise CreditscopeError("the model returned a single number; return logits, one row per sample")
    if logits.is_complex():
        raise CreditscopeError(
            f"the model returned logits of {logits.dtype}; return real numbers, such as logits.abs()"
        )
    return Answer(logits.shape, _among_others(output, logits, n))


def _among_others(output: Any, logits: Tensor, n: int) -> str:
    if not (isinstance(output, tuple | list) and output and output[0] is logits):
        return ""
    others = [t for t in output[1:] if isinstance(t, Tensor) and t.is_floating_point() and t.dim() > 1 and len(t) == n]
    if not others:
        return ""
    shapes = " and ".join(str(list(t.shape[1:])) for t in others)
    return f"the first tensor that the model gives back, {list(logits.shape[1:])} per sample, is taken as logits, not {shapes}"


def _split(eval_batches: Iterable[Any]) -> Iterator[tuple[Any, Tensor]]:
    try:
        items = iter(eval_batches)
    except TypeError:
        raise CreditscopeError(
            f"eval_batches is {with_article(eval_batches)}; give a list of (x, y) batches or a DataLoader"
        ) from None
    for item in items:
        yield split_batch(item)


def _once(batches: Any) -> bool:
    """Can it be read only once? (A generator, a map, a zip.)"""
    return iter(batches) is batches


def device_of(model: nn.Module) -> torch.device:
    """Where the model's inputs go: the device of its first parameter (or buffer)."""
    for t in (*model.parameters(), *model.buffers()):
        return t.device
    return torch.device("cpu")


def _moved(inputs: Any, device: torch.device) -> Any:
    # a tensor of inference mode can never carry gradients; its copy can
    return tree_map(lambda t: (t.clone() if t.is_inference() else t).to(device) if isinstance(t, Tensor) else t, inputs)


def _cast(inputs: Any, dtype: torch.dtype) -> Any:
    return tree_map(lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t, inputs)


def same_labels(batches: Batches) -> None:
    """All batches belong to one task: the same form of labels, and (in batches of some size) labels in common."""
    first = batches[0][1]
    known = set(first.unique().tolist()) if first.dim() == 1 and not first.is_floating_point() else None
    for k, (_, y) in enumerate(batches[1:], 1):
        if (y.dim(), y.is_floating_point()) != (first.dim(), first.is_floating_point()):
            raise CreditscopeError(
                f"the labels of batch {k} ({y.dtype}, {y.dim()} dimensions) are not of the form of batch 0 ({first.dtype}, "
                f"{first.dim()}); give batches of one task"
            )
        if known and min(len(first), len(y)) >= FEW and not known & set(y.unique().tolist()):
            raise CreditscopeError(
                f"batch {k} and batch 0 have no label in common (label sets differ); evaluate on one task, shuffled: "
                "batches sorted by class have different gradients by construction"
            )


def _require_apart(batches: Batches) -> None:
    """No batch comes twice: its samples would count twice in every interval."""
    seen: dict[tuple[Any, ...], int] = {}
    for k, (inputs, y) in enumerate(batches):
        given = [t for t in tensors_of(inputs) if _is_of_samples(t, len(y))]
        if not given or len(y) <= DIFFERENT:
            continue
        key = (y.shape, *(tuple(t[0].flatten()[:DIFFERENT].tolist()) for t in (y.unsqueeze(1), *given)))
        first = seen.setdefault(key, k)
        if first == k or not _equal(batches[first], (inputs, y)):
            continue
        if len(given[0].flatten(1).unique(dim=0)) > DIFFERENT:
            raise CreditscopeError(
                f"batch {k} holds the samples of batch {first} again; give disjoint batches (next(iter(loader)) begins anew each "
                "time; a loader that fills one tensor again and again needs clone())"
            )


def _equal(one: tuple[Any, Tensor], other: tuple[Any, Tensor]) -> bool:
    both = [tensors_of(item) for item in (one, other)]
    return len(both[0]) == len(both[1]) and all(map(torch.equal, *both))


def _fit_dtype(model: nn.Module, batches: Batches) -> None:
    """Cast floating-point inputs to the model's dtype, where the model does not take them as they are."""
    wanted = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    inputs, y = batches[0]
    if wanted is None or all(t.dtype == wanted for t in tensors_of(inputs) if t.is_floating_point()):
        return
    example = map_samples(inputs, len(y), lambda t: t[:1])
    try:
        with torch.no_grad():
            call_model(model, example)
    except (RuntimeError, TypeError, ValueError):
        recover(model)
        batches[:] = [(_cast(inputs, wanted), y) for inputs, y in batches]


def _has_token_labels(batches: Batches) -> bool:
    y = batches[0][1]
    return y.dim() == 2 and not y.is_floating_point()


def _asks(model: nn.Module, batches: Batches, wanted: bool | None) -> bool:
    """Is the first run of the model the one that asks for its own loss? Not on an accelerator, where a label that is no class
    ends more than the run."""
    return wanted is None and _has_token_labels(batches) and _takes_labels(model) and device_of(model).type == "cpu"


def _takes_labels(model: nn.Module) -> bool:
    return "labels" in inspect.signature(model.forward).parameters


def _shift_labels(model: nn.Module, batches: Batches, wanted: bool | None, logits: torch.Size | None) -> None:
    """Token labels are shifted here where the user wants it, or where the model shifts them inside its own loss."""
    y = batches[0][1]
    if not _has_token_labels(batches):
        if wanted is not None:
            raise CreditscopeError(
                f"shift_labels is given for labels of shape {list(y.shape)}; it is for token labels [B, T]"
            )
        return
    shift, why = wanted, "as asked for"
    if shift is None:
        shift, why = _asked(model, batches, logits)
    if shift is None:
        return
    if shift:
        batches[:] = [(inputs, next_labels(y)) for inputs, y in batches]
    batches.label_note = f"{NEXT if shift else AS_GIVEN}, {why}"


def _asked(model: nn.Module, batches: Batches, logits: torch.Size | None) -> tuple[bool | None, str]:
    """(shift?, why), read off the loss that the model itself computes; None: the labels are not those of tokens.

    logits: their shape; None: the model has not run yet.
    """
    y = batches[0][1]
    if logits is not None and not _are_tokens(y, logits):
        return None, ""
    if not _takes_labels(model):
        return False, "as given (the model has no loss of its own)"
    if logits is not None and not _are_classes(batches, y, logits):
        return None, ""
    why = "as in the model's own loss"
    short = [(few, y[:, :TOKENS]) for x, y in batches if (few := first_tokens(x, y)) is not None]
    if short:
        with suppress(CreditscopeError):  # they may not tell, or be too few for the model: the whole samples do
            asked = _losses(model, batches, short)
            if asked is not None:
                return is_shifted(asked), why
    try:
        asked = _losses(model, batches, batches)
    except CreditscopeError:
        if logits is None and not _are_classes(batches, y, require_logits(model, *_first(batches)).shape):
            return None, ""
        raise
    return (None, "") if asked is None else (is_shifted(asked), why)


def first_tokens(inputs: Any, y: Tensor) -> Any | None:
    """The inputs of a language model, cut to a few tokens; None where they are no more, or not one for each label."""
    if y.dim() != 2 or y.shape[1] <= TOKENS or any(t.shape[:2] != y.shape for t in tensors_of(inputs)):
        return None
    return map_samples(inputs, len(y), lambda t: t[:, :TOKENS])


def _are_tokens(y: Tensor, logits: torch.Size) -> bool:
    return len(logits) == 3 and logits[1] == y.shape[1]


def _are_classes(batches: Batches, y: Tensor, logits: torch.Size) -> bool:
    """Are the labels those of tokens, and classes all of them? A label that is none is told where it is met.

    y: labels of samples with logits of this shape.
    """
    if not _are_tokens(y, logits):
        return False
    return not any(bool(((y != IGNORED) & ((y < 0) | (y >= logits[2]))).any()) for _, y in batches)


@torch.no_grad()
def _losses(model: nn.Module, batches: Batches, given: list[tuple[Any, Tensor]]) -> list[Losses] | None:
    """Of the samples to ask of what is given (the batches, or parts of them), each run by itself, until one tells; None: the
    labels are not classes of tokens."""
    inputs, y = max(given, key=lambda item: _most_scored(item[1]))
    asked = []
    for k in samples_to_ask(y):
        example, labels = map_samples(inputs, len(y), lambda t, k=k: t[k : k + 1]), y[k : k + 1]
        own, logits = _own(model, example, labels)
        if not _are_classes(batches, labels, logits.shape):
            return None
        asked.append(losses(own, logits, labels))
        if is_clear(asked[-1]):
            break
    return asked


def _own(model: nn.Module, example: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss that the model computes from these labels, and its logits."""
    try:
        output = call_model(model, example, labels=labels)
    except Exception as error:  # it is the user's code, as in `require_logits`
        recover(model)
        why = " ".join((str(error) or type(error).__name__).split())[:240]
        raise CreditscopeError(
            f"the model takes labels and cannot run with those of the batch: {why}; {SAY}"
        ) from error
    found = loss_of(output)
    if found is None:
        raise CreditscopeError(f"the model takes labels and returns no loss, so how it reads them is not known; {SAY}")
    named = isinstance(getattr(output, "logits", None), Tensor)
    return found, logits_of(output) if named else logits_of(call_model(model, example))


def _most_scored(y: Tensor) -> int:
    return max((int((y[k, 1:] != IGNORED).sum()) for k in samples_to_ask(y)), default=0)


def call_model(model: nn.Module, inputs: Any, **kwargs: Any) -> Any:
    """model(x), model(*inputs) or model(**inputs), by the form of the inputs; on copies, to which the model may write."""
    return call_on(model, copied(inputs), **copied(kwargs))


def copied(inputs: Any) -> Any:
    """With tensors of their own: one that a model writes to unseen (by `.data`, by numpy) is nobody else's."""
    return tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, inputs)


def call_on(model: nn.Module, inputs: Any, **kwargs: Any) -> Any:
    """`call_model` on these very tensors."""
    if isinstance(inputs, Arguments):
        return call_on(model, inputs.inputs, **inputs.kwargs, **kwargs)
    with first_run(model):
        if isinstance(inputs, Mapping):
            return model(**inputs, **kwargs)
        if isinstance(inputs, tuple | list):
            return model(*inputs, **kwargs)
        return model(inputs, **kwargs)


def logits_of(output: Any) -> Tensor:
    """The logits in a model's output: the tensor itself, its `.logits`, its "logits" entry or its first element."""
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("logits")
    if found is None and isinstance(output, tuple | list) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        raise CreditscopeError(f"the model returned {type(output).__name__} without logits; return a tensor of logits")
    return found


def tensors_of(inputs: Any) -> list[Tensor]:
    return [t for t in tree_flatten(inputs)[0] if isinstance(t, Tensor)]


def map_samples(inputs: Any, batch_size: int, fn: Any) -> Any:
    """Apply `fn` to every tensor whose first dimension is the batch (extra arguments belong to the call, not to a sample)."""
    if isinstance(inputs, Arguments):
        return Arguments(map_samples(inputs.inputs, batch_size, fn), inputs.kwargs)
    return tree_map(lambda t: fn(t) if isinstance(t, Tensor) and _is_of_samples(t, batch_size) else t, inputs)


def _is_of_samples(t: Tensor, n: int) -> bool:
    """Has it a row for each of n samples? What is sparse (the edges of a graph) belongs to all of them."""
    return _is_dense(t) and t.dim() > 0 and len(t) == n


def _is_dense(t: Tensor) -> bool:
    return t.layout is torch.strided and not t.is_nested
