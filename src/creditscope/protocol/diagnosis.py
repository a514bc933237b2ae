"""`diagnose`: measure a network, judge it, report; in one call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from creditscope.credit.base import as_rule
from creditscope.errors import CreditscopeError, with_article
from creditscope.measure.facts import Facts, Training
from creditscope.measure.full import Full
from creditscope.measure.loss import LossFn
from creditscope.measure.profile import depth_profile
from creditscope.measure.sweep import dtype_of, facts_of_ranks, sweep
from creditscope.protocol import DiagnosticThresholds, get_policy
from creditscope.protocol.consistency import SAME_DATA
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.stream.batches import as_batches, device_of
from creditscope.stream.blocks import resolve_blocks
from creditscope.stream.devices import has_float64
from creditscope.stream.eager import original
from creditscope.stream.ranks import ranks_of
from creditscope.stream.untouched import untouched

LEVELS = ("basic", "full")


def diagnose(
    model: nn.Module,
    eval_batches: Iterable[Any],
    headline_acc: float | Iterable[float] | None = None,
    frozen_baseline_acc: float | Iterable[float] | Mapping[str, Any] | None = None,
    method_name: str = "",
    notes: str = "",
    thresholds: DiagnosticThresholds | None = None,
    credit: Any = None,
    blocks: Any = None,
    n_test: int | None = None,
    protocol: str = "three-check",
    *,
    bp_acc: float | Iterable[float] | None = None,
    network_acc: float | None = None,
    headline_on: str = SAME_DATA,
    read: str | None = None,
    loss_fn: LossFn | None = None,
    evidence: Mapping[str, str] | None = None,
    checkpoint: str = "final",
    run: str = "",
    level: str = "basic",
    layers: Sequence[int] | None = None,
    training: Training | None = None,
    forward_kwargs: Mapping[str, Any] | None = None,
    shift_labels: bool | None = None,
    fit_batches: Iterable[Any] | None = None,
    test_batches: Iterable[Any] | None = None,
    build: Callable[[], nn.Module] | None = None,
) -> DiagnosticReport:
    """Measure `model` on `eval_batches` and judge it by `protocol`.

    model: a module with the interface embed / blocks / readout, or any other module (compiled ones: the original inside).
    eval_batches: batches (x, y), ((x, more), y) or mappings with an entry "labels"; 8 disjoint ones of 128 are best
        (stability needs 2). Language models: logits [B, T, C] with labels [B, T], -100 where a token is not scored.
    headline_acc: the accuracy that would be published; a list has one number per seed.
    network_acc: test accuracy of this very network, if headline_acc covers several (at most 5 pp beyond them). It must lie in
        the 99.9 % interval of its accuracy on eval_batches. Without it, the range of the list must overlap that interval, or
        one number with 5 pp of slack. Otherwise the status is "inconsistent" and D3 is not judged.
    headline_on: "other data" if eval_batches are not a sample of the data behind these accuracies; they are then not compared.
    frozen_baseline_acc: accuracy of the frozen-blocks null: a number or a list (kind unstated), or a mapping
        {"matched": ..., "bp": ...}. None leaves D3 unmeasured.
    credit: a CreditRule, or a callable (hiddens, logits, y) -> [a_0, ..., a_L], with None for a layer that gets no
        credit; None leaves alignment unmeasured. Every layer that a callable returns counts in Γ.
    blocks: names, patterns or modules of the residual blocks, for a model without the interface; None finds them
        (`find_blocks`) and says what it found.
    n_test: size of the test set behind the accuracies (gives the binomial interval for a single network); if it is not
        given, the number of evaluation samples is used.
    bp_acc: accuracy of backpropagation on the same task; if it does not beat the `bp` null, D3 is not measurable.
    loss_fn: (logits, y) -> loss per sample; cross-entropy if None.
    level: "full" adds perturbation correlation, nudging (both with controls) and the fresh-B null; without credit, the
        controls only. Its time is linear in the layers; where it is long, how long is said before (standard error).
    layers: numbers of the layers (0 to L) at which level full measures perturbation correlation and nudging; None: all.
        Everything else is taken at every layer in one pass.
    forward_kwargs: passed to every forward call of the model, after the inputs.
    shift_labels: token labels only. True scores token t against label t + 1, False against label t; None follows the loss
        that the model computes from `labels` (as given if it has none), and asks for this if the loss does not decide.
    training: facts of the run, if known (`creditscope.measure.weight_growth.training_facts`).
    fit_batches: samples that are not in eval_batches (the training data, as for evaluation): adds the depth profile
        (`depth_profile`), and, without a null, its estimate of the depth margin. Only a trained null decides D3.
    test_batches: samples on which the profile's readouts are tested; eval_batches if None.
    build: makes a new model of the same architecture, for the profile's twin, if its blocks cannot be re-initialised
        otherwise (as for `frozen_blocks`).

    Under DistributedDataParallel and `fully_shard` every rank calls, each with its own share of the batches; every rank gets the
    report of the whole model and of all batches, the first rank's first.

    It is measured on the device of the model, with TF32 off; where that has no float64 (Apple's GPUs), on a copy on the CPU, and
    the report's notes say so. The model, its gradients, mode, hooks and every RNG are left as found.
    """
    thresholds = thresholds or DiagnosticThresholds()
    get_policy(protocol)  # a wrong name is said before anything is measured
    if level not in LEVELS:
        raise CreditscopeError(f"level {level!r} is unknown; choose one of {', '.join(LEVELS)}")
    asked = _checked_layers(layers, level)
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
    if frozen_baseline_acc is not None and headline_acc is None:
        raise CreditscopeError("frozen_baseline_acc is given without headline_acc; give both, or neither")
    if fit_batches is None and test_batches is not None:
        raise CreditscopeError("test_batches is given without fit_batches; the readouts of the profile need both")
    rule = as_rule(credit)
    ranks = ranks_of(model)
    model = original(model)
    if ranks is None and not has_float64(device := device_of(model)):
        blocks = None if blocks is None else [name for name, _ in resolve_blocks(model, blocks)]
        model = copy.deepcopy(model).cpu()
        rule = None if rule is None else copy.deepcopy(rule).to("cpu")
        notes = "; ".join(filter(None, [notes, f"{device.type} has no float64: measured on a copy on the CPU"]))
    if ranks is not None:
        eval_batches = ranks.whole(eval_batches)
        fit_batches = None if fit_batches is None else ranks.whole(fit_batches)
        test_batches = None if test_batches is None else ranks.whole(test_batches)

    def measured() -> Facts:
        """Everything that is measured on the network, before it is judged."""
        with untouched(model, reads=eval_batches):  # a loader draws random numbers even where it does not shuffle
            batches = as_batches(model, eval_batches, forward_kwargs, loss_fn is not None, shift_labels)
        full = Full(rule, asked) if level == "full" else None
        facts = sweep(
            model,
            batches,
            rule,
            blocks=blocks,
            read=read,
            loss_fn=loss_fn,
            floor=thresholds.floor_for(dtype_of(model)),
            checkpoint=checkpoint,
            watch=None if full is None else full.watch,
        )
        named, read_as = blocks, facts.stream.read
        if named is None and facts.stream.blocks:
            named = list(dict.fromkeys(facts.stream.blocks))  # those that were found
        update: dict[str, Any] = {"training": training}
        if fit_batches is not None:
            update["profile"] = depth_profile(
                model,
                fit_batches,
                batches if test_batches is None else test_batches,
                named,
                read=read_as,
                build=build,
                forward_kwargs=forward_kwargs,
                shift_labels=shift_labels,
            )
        if full is not None:
            coupled = facts.proof is not None and facts.proof.independent is False
            update |= full.facts(model, batches, blocks=named, read=read_as, loss_fn=loss_fn, coupled=coupled)
        return facts.model_copy(update=update)

    facts = facts_of_ranks(ranks, measured)
    return make_report(
        facts,
        headline_acc=headline_acc,
        network_acc=network_acc,
        headline_on=headline_on,
        frozen_baseline_acc=frozen_baseline_acc,
        bp_acc=bp_acc,
        n_test=n_test,
        method_name=method_name,
        notes=notes,
        run=run,
        thresholds=thresholds,
        protocol=protocol,
        evidence=evidence,
    )


def _checked_layers(layers: Sequence[int] | None, level: str) -> tuple[int, ...] | None:
    if layers is None:
        return None
    try:
        given = [*layers]
    except TypeError:
        given = []
    if not given or any(type(layer) is not int or layer < 0 for layer in given):
        raise CreditscopeError(f"layers is {layers!r}; give numbers of layers, 0 or more")
    if level != "full":
        raise CreditscopeError(
            "layers is given for level 'basic', which takes every layer in one pass; say level='full'"
        )
    return tuple(sorted(set(given)))
