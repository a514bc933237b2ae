"""What a measurement leaves behind: plain numbers, each with the convention under which it was taken.

Nothing here judges: thresholds live in `creditscope.protocol`. Per-layer lists are indexed by l = 0..L, where h_0 is the
output of the embedding and h_L is what the readout reads. `None` in a list means "not measurable at this layer".
Non-finite numbers are kept (and written to JSON as the strings "NaN", "Infinity", "-Infinity").
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from creditscope.display import Shown
from creditscope.stream.notes import GIVEN_AS_ARRAYS, TOKEN_READS

GROUP = 128
"""Samples per group wherever a fact needs batches (stability, intervals): the batch size that papers quote."""

PAIRED = "paired t over"
"""How the name of an interval over pairs begins."""

COSINE_ROUNDING = 1e-8
"""A mean cosine this close to 1 is 1 to round-off: vectors that differ by 1e-4 of their length in float32 reach it."""


def batch_mean(per_sample: float, batch: int = GROUP) -> float:
    """‖g‖ of one sample's own loss, as a loss that is averaged over a batch of this size shows it."""
    return float(per_sample) / batch


class Fact(BaseModel):
    """Base of every fact: immutable, no unknown fields, non-finite floats survive JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Convention(Fact):
    """How the numbers of one report were taken."""

    n_samples: int
    samples: str
    """Hash of the evaluation samples (inputs and labels, independent of batching)."""
    repeated: int = 0
    """Evaluation samples that are equal to an earlier one, inputs and labels, to the bit."""
    batch_sizes: tuple[int, ...]
    """Distinct sizes of the evaluation batches as they were given."""
    group_size: int = GROUP
    """Samples per group for stability and for the intervals of D1 and D2."""
    loss: str = "cross-entropy"
    reduction: str = "sum over samples: g_l is the gradient of each sample's own loss"
    dtype: str = "float32"
    """dtype of the network (the reference gradient is computed in it)."""
    device: str = "cpu"
    """Class of the device on which the network was measured."""
    cosine_dtype: str = "float64, no eps clamp"
    mode: str = "eval"
    layers: str = "h_0 = output of the embedding, h_l = input of block l, h_L = output of the last block"
    checkpoint: str = "final"


class StreamInfo(Fact):
    """What the network looked like to the instrument."""

    kind: str
    """`residual` (h_{l+1} = h_l + f_l(h_l)) or `plain` (h_{l+1} = f_l(h_l))."""
    depth: int
    """L, the number of blocks."""
    read: str
    """How a hidden state becomes one vector per sample: `vector`, `cls`, `mean`, `last`, `flatten`."""
    widths: tuple[int, ...]
    """Length of the vector that is read at each layer."""
    blocks: tuple[str, ...] = ()
    """Names of the blocks in the model, where it was seen through hooks."""
    left_out: tuple[str, ...] = ()
    """Modules of the same class that stand beside the blocks in a list and are not among them."""
    notes: tuple[str, ...] = ()

    @property
    def vector(self) -> str:
        """Which vector of its tokens stands for a sample: "cls token", "last token", "token mean"; "" where all do."""
        return TOKEN_READS.get(self.read, "")

    @property
    def given_as_arrays(self) -> bool:
        """Did states, credit and reference come from outside, so that only their author knows how they were taken?"""
        return GIVEN_AS_ARRAYS in self.notes


class Proof(Fact):
    """Proof of the stream, on a few samples of the measurement; all errors are relative. None: could not be told."""

    n_samples: int
    logits: float | None
    """Largest difference between the stream's logits and the model's own (states given as arrays: between the losses of runs
    that start at the states and the losses that were given)."""
    independent: bool | None
    """Does a sample get the same logits in other company? Where not, g_l depends on the batch."""
    swap: tuple[float | None, ...]
    """Per layer: h_l of one sample put into the run of another one; difference of the logits (small batches of deep networks: of
    the next state) to the sample's own. Where it is not rounding, something goes around h_l."""
    beside: tuple[str, ...] = ()
    """What the blocks or the model are given beside the stream; it was held to the sample's own in `swap`."""
    gradient: tuple[float | None, ...]
    """Per layer: <g_l, v> against a finite difference of the loss along v. None: below the resolution of the loss."""
    gradient_dtype: str
    """Of the finite difference: float64 (a copy of the network), or the network's own."""
    gradient_reason: str = ""
    """Why it is not float64."""
    kinks: tuple[int, ...] = ()
    """Layers whose state lies on a kink of the loss (part of it is exactly 0, at the bend of a ReLU): proved beside that part; on
    it, g_l was seen to lie between the slopes on both sides."""
    later: int = 0
    """Samples of other batches, or further back in the first one, whose gradients were checked as they were measured (on the way
    from h_0 to the loss, or one step at a time); their errors are part of `gradient`."""


class Scale(Fact):
    """Norm of the hidden states, raw (never renormalised)."""

    mean: tuple[float, ...]
    """Per layer: mean over samples of the per-sample L2 norm of h_l."""
    median: tuple[float, ...]
    growth: float
    """max over l of mean‖h_{l+1}‖ / mean‖h_l‖."""
    growth_at: int | None
    """The l of that maximum."""
    total_growth: float
    """mean‖h_L‖ / mean‖h_0‖."""
    growth_by_group: tuple[float, ...]
    """growth of each group of `group_size` samples (for the interval of D1)."""
    growth_all_tokens: float | None = None
    """Token models that are read at one vector (cls, last, mean): growth of the norm over all tokens of a sample,
    those that pad it included."""


class Reference(Fact):
    """Norm of the backpropagation gradient g_l = d(loss of the sample)/d(h_l)."""

    per_sample: tuple[float, ...]
    """Per layer: mean over samples of ‖g_l‖, loss summed over samples (does not depend on the batch size)."""
    batch_mean_128: tuple[float, ...]
    """per_sample / 128: what a mean-reduced loss would show at batch size 128."""
    clamp_batch_size: tuple[float, ...]
    """Per layer: the batch size B at which per_sample / B reaches 10 x 1e-8: from there on, the eps of a usual cosine is
    within a factor 10 of the reference (and clamps it at 10 times that B)."""
    deepest_by_group: tuple[float, ...]
    """mean ‖g_L‖ (per_sample) of each group of `group_size` samples (for the interval of D2)."""
    zero_samples: tuple[int, ...]
    """Per layer: number of samples whose g_l is exactly zero."""
    rounded_samples: int = 0
    """Samples whose cross-entropy is so small that float32 rounds their g_l by 5 % or more (the network is very sure)."""
    loss_scale: float | None = None
    """Of a loss_fn: mean over samples of the norm of its gradient at the logits, over the most that a cross-entropy has (√2 for
    each row of logits). None: cross-entropy, or not known."""


class Alignment(Fact):
    """Per-sample cosine between the credit a_l and the reference g_l, float64, no clamp."""

    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]
    """Standard deviation over samples (ddof 1)."""
    measurable: tuple[int, ...]
    """Per layer: samples with two non-zero finite vectors; the others are counted out, never set to 0 or 1."""
    under_floor: tuple[float, ...]
    """Per layer: share of samples with ‖g_l‖ / 128 below `floor`."""
    floor: float
    credit_norm: tuple[float, ...]
    """Per layer: mean over samples of ‖a_l‖."""
    counting: tuple[int, ...] | None = None
    """Layers whose credit trains something: Γ, deep mean, concentration, fresh-B and the ρ means are over these. None: a
    report from before three-check/1.1, over all layers."""
    counting_note: str = ""
    """Why these layers count, where it is not all of them by the rule's own word."""

    @property
    def counting_layers(self) -> tuple[int, ...]:
        return tuple(range(len(self.mean))) if self.counting is None else self.counting

    @property
    def equal_to_gradient(self) -> tuple[int, ...]:
        """Layers that count and whose credit points along the reference to round-off, in every sample."""
        return tuple(k for k in self.counting_layers if (self.mean[k] or 0.0) > 1 - COSINE_ROUNDING)

    @property
    def layers_behind(self) -> str:
        """ " (3 of 5 layers)" where some layer that counts is not measurable in any sample, so that Γ is a mean over fewer."""
        counting = self.counting_layers
        known = sum(self.mean[layer] is not None for layer in counting)
        return f" ({known} of {len(counting)} layers)" if known < len(counting) else ""


CLAMPED = "clamped at 128"
"""The one aggregation of Γ that an eps clamps (PF02)."""


class Aggregate(Fact):
    """The same cosines under every aggregation in use, side by side; over the layers that count."""

    headline: float | None
    """Mean of the layer means over the layers that count (`Alignment.counting`)."""
    concat: float | None
    """Per-sample cosine of the vectors concatenated over layers, mean over samples."""
    norm_weighted: float | None
    """Layer means weighted by the layer's mean ‖g_l‖."""
    flattened: float | None
    """Per layer: cosine of the [samples x features] arrays flattened to one vector; mean over layers."""
    clamped_128: float | None
    """What F.cosine_similarity (eps 1e-8) prints in the network's dtype for the mean-reduced gradient at batch 128."""
    spread: float | None
    """Largest minus smallest of the five."""
    sign_flips: bool
    """True if two of the five have opposite signs and both exceed .01 in size."""
    gamma_all_layers: float | None = None
    """Mean of the layer means over all layers: what `headline` was before three-check/1.1, and what papers quote."""

    @property
    def measured(self) -> dict[str, float]:
        """The five aggregations of Γ by name, those that were measured."""
        every = {
            "mean of layers": self.headline,
            "concatenated": self.concat,
            "norm-weighted": self.norm_weighted,
            "flattened": self.flattened,
            CLAMPED: self.clamped_128,
        }
        return {name: value for name, value in every.items() if value is not None}


class Concentration(Fact):
    """How the headline is spread over the layers that count."""

    share: tuple[float | None, ...]
    """cos_l / sum over the layers that count of |cos_l|; None at the others, and everywhere below three layers that count."""
    top_layer: int | None
    top_share: float | None
    """Largest |share| and its layer."""
    deep_mean: float | None
    """Mean of the layer means over the layers of 1..L that count."""
    deep_mean_without_exact: float | None
    """The same without the layers whose credit is exact by construction (None if none is left)."""
    exact_layers: tuple[int, ...]
    deep_mean_all_layers: float | None = None
    """Mean of the layer means over layers 1..L, whether they count or not: what papers quote."""


class Stability(Fact):
    """Mean pairwise cosine of the batch-mean gradient directions over disjoint groups of 128 samples."""

    deepest: float | None
    per_layer: tuple[float | None, ...]
    groups: int
    reason: str = ""
    """Why it was not measured, if it was not."""


class DepthMargin(Fact):
    """Accuracy of the trained network minus accuracy of a null (random-blocks baseline), in percentage points."""

    null: str
    """`matched`, `bp`, or `kind unstated`."""
    accuracy: float
    null_accuracy: float
    margin_pp: float
    low_pp: float | None
    high_pp: float | None
    """95 % interval, or None where only a point comparison is possible."""
    interval: str
    """Which interval it is: "paired t over n seeds", "Welch t ...", "binomial, this network only", "point comparison"."""
    from_evaluation: bool = False
    """True where the number of evaluation samples stands in for the size of the test set."""
    n: int
    """Number of trained networks behind `accuracy`."""
    null_n: int | None = None
    """Number of nulls behind a Welch interval, where they could not be paired; None for any other interval, and in old files."""
    null_repeated: bool = False
    """Several nulls were given, and all of them have the same accuracy."""
    repeated: bool = False
    """Several trained networks were stated, and all of them have the same accuracy."""
    binomial_se_pp: float | None = None
    """Binomial standard error of the difference from the size of the test set; printed, not added."""

    @property
    def ends(self) -> tuple[float, float] | None:
        """Of the interval, where there is one."""
        return None if self.low_pp is None or self.high_pp is None else (self.low_pp, self.high_pp)

    @property
    def paired(self) -> bool:
        """Is the interval one over pairs of a network and its null? Old files say it by the name of the interval alone."""
        return self.ends is not None and self.interval.startswith(PAIRED)


class Depth(Fact):
    """Depth margins to every null that was given, and whether the task can show depth utility at all."""

    margins: tuple[DepthMargin, ...]
    bp_margin: DepthMargin | None = None
    """Margin of backpropagation itself over its null (the `bp` null), where known."""


class Readout(Fact):
    """Accuracy of a linear readout of one state on held-out samples; None where the state is not finite, or was not given."""

    accuracy: float | None
    low: float | None
    high: float | None
    """95 % interval (Wilson) over the test samples."""
    width: int
    """Numbers per sample that were read."""
    strength: float | None
    """Ridge strength over the largest eigenvalue of the centred XᵀX; None where the state is the same for every sample."""


class Paired(Fact):
    """Difference of two readouts on the same test samples, in percentage points."""

    pp: float
    low_pp: float
    high_pp: float
    """95 % interval from the samples on which the two differ (Agresti and Min)."""


class DepthProfile(Shown, Fact):
    """What a linear readout finds at each depth, in the network and in its twin: the same network with random blocks."""

    raw: Readout | None = None
    """Of the raw input."""
    raw_reason: str = ""
    """Why the raw input was not read."""
    curve: tuple[Readout, ...]
    """Of h_0 to h_L."""
    twin: tuple[Readout, ...]
    """The same for the twin."""
    margin: Paired | None
    """Readout of h_L minus the twin's: the estimate of the depth margin. None where one of them is not finite."""
    steps: tuple[Paired | None, ...]
    """Per block: readout of h_{l+1} minus that of h_l; the L intervals hold together (Bonferroni)."""
    first_loss: int | None
    """The first block whose step lies below zero."""
    n_fit: int
    n_test: int
    """Samples (language models: sequences, which is what the intervals are over)."""
    fit_rows: int
    test_rows: int
    """What was fitted and scored: the samples, or the sampled tokens."""
    fit_samples: str
    test_samples: str
    """Hashes of inputs and labels."""
    seed: int
    """Of the twin's blocks."""
    rest: str
    """The twin's embedding: `keep` (the network's own) or `fresh`; `given`: the states of the twin came from outside."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dict(json.loads(self.model_dump_json()))


class Evaluation(Fact):
    """How many of the evaluation samples the network answers rightly."""

    accuracy: float
    n: int
    """Samples behind the interval (language models: samples, not tokens, since the tokens of a sample are not independent)."""
    low: float
    high: float
    """99.9 % binomial interval (Clopper-Pearson) of `accuracy`."""
    n_classes: int | None = None
    largest_class: float | None = None
    """Share of the largest class among the labels; None in a report from before three-check/1.1."""

    @property
    def chance(self) -> float | None:
        """max(1/C, share of the largest class), as far as they are known."""
        parts = [1 / self.n_classes] if self.n_classes else []
        return max([*parts, *([] if self.largest_class is None else [self.largest_class])], default=None)


class Claim(Fact):
    """The accuracy that is stated for the network, as it is compared with the evaluation batches and with chance."""

    accuracy: float
    """Mean of what is published (the network's own accuracy where nothing else is stated)."""
    low: float
    high: float
    """95 % interval of it; low = high = accuracy for a point."""
    interval: str
    own_low: float
    own_high: float
    """What this network's own accuracy may be, as far as it was stated."""
    own: str
    """What that is: its own accuracy, the range over seeds, or one number with 5 pp of slack."""
    other_data: bool = False
    """True where the user states that the evaluation batches are no sample of the data behind the claim."""


class LayerMeans(Fact):
    """A number per sample and layer, averaged over the samples where it can be measured."""

    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]
    """Standard deviation over samples (ddof 1)."""
    measurable: tuple[int, ...]
    """Per layer: samples behind the mean. The others are below the resolution, or their credit is zero or not finite."""
    deep_mean: float | None
    """Mean of the layer means over the layers of 1..L that count."""
    deep_mean_without_exact: float | None
    """The same without the layers where the audited credit is exact by construction."""
    deep_mean_all_layers: float | None = None
    """Mean of the layer means over layers 1..L, whether they count or not: what papers quote."""


class Perturbation(Fact):
    """ρ: Pearson correlation over directions v between <a_l, εv> and L(h_l + εv) - L(h_l), per sample, averaged."""

    credit: LayerMeans | None = None
    """The audited credit; None if none was given."""
    reference: LayerMeans | None = None
    """Positive control: a = g."""
    random: LayerMeans | None = None
    """Negative control: a = N(0, 1)."""
    directions: int
    """M, unit-norm Gaussian directions per sample, in the space of the vector that is read (the same at layers of equal
    width)."""
    epsilon: float
    """ε, absolute: not relative to ‖h_l‖."""
    n_samples: int
    samples: str
    dtype: str
    resolution: str
    """Spread of the loss changes over the directions below which a sample counts as not measurable."""
    seed: int
    layers: tuple[int, ...] | None = None
    """Layers that were asked for (`layers=`); the means are over these. None: all."""
    reason: str = ""
    """Why it was not measured, if it was not."""


class Nudging(Fact):
    """Loss change after h_l <- h_l - η a_l/‖a_l‖, per sample, averaged; negative: the credit lowers the loss."""

    credit: LayerMeans | None = None
    reference: LayerMeans | None = None
    """a = g: the most that a small step of this length can do."""
    random: LayerMeans | None = None
    step: float
    """η, absolute: not relative to ‖h_l‖."""
    n_samples: int
    samples: str
    dtype: str
    resolution: str
    layers: tuple[int, ...] | None = None
    """As for the perturbation correlation."""
    reason: str = ""


class FreshB(Fact):
    """The deep mean cosine (layers of 1..L that count, without exact ones) against the same with everything random drawn anew."""

    trained: float | None = None
    """With the rule as it was trained, on the same samples as the draws."""
    mean: float | None = None
    std: float | None = None
    """Over the draws (ddof 1)."""
    z: float | None = None
    """(trained - mean) / std."""
    draws: tuple[float | None, ...] = ()
    layers: tuple[int, ...]
    n_samples: int = 0
    samples: str = ""
    seed: int
    reason: str = ""
    """Why it does not apply or could not be measured."""


class Training(Fact):
    """What the run itself shows; per-epoch lists start at epoch 1."""

    accuracy: tuple[float, ...]
    """Test accuracy."""
    train_loss: tuple[float, ...]
    """Mean over the samples of the epoch, taken while training."""
    loss_decrease: float | None
    """train_loss of the last epoch minus that of the first: negative where training lowered it."""
    loss_decrease_from_start: float | None
    """The same from the loss at initialisation, where it is known."""
    growth: float | None
    """‖w - w_0‖ / ‖w_0‖ over all parameters."""
    growth_embed: float | None
    growth_readout: float | None
    growth_by_block: tuple[float | None, ...]
    weight_product: tuple[float | None, ...]
    """Per block: ‖w1‖·‖w2‖ (Frobenius), where the block has two weight matrices of these names."""
    weight_product_start: tuple[float | None, ...]
    """The same at initialisation."""


class Facts(Fact):
    """Everything measured on one network."""

    convention: Convention
    stream: StreamInfo
    proof: Proof | None = None
    """Missing in reports made before streams were proved."""
    accuracy: float | None = None
    """Accuracy on the evaluation samples of this report (not the headline accuracy)."""
    loss: float | None = None
    """Mean loss on the evaluation samples."""
    evaluation: Evaluation | None = None
    """`accuracy` with its interval; None where labels are no classes."""
    claim: Claim | None = None
    """The stated accuracy; None where none was stated."""
    scale: Scale
    reference: Reference
    alignment: Alignment | None = None
    aggregate: Aggregate | None = None
    concentration: Concentration | None = None
    stability: Stability
    depth: Depth | None = None
    profile: DepthProfile | None = None
    """Where data to fit the readouts were given."""
    perturbation: Perturbation | None = None
    nudging: Nudging | None = None
    fresh_b: FreshB | None = None
    """These three: level full only."""
    training: Training | None = None
    """Where the network comes with its run."""
    non_finite: tuple[str, ...] = ()
    """Where NaN or Inf was met (weights, logits, h_3, g_2, credit a_1, ...)."""

    @model_validator(mode="after")
    def _one_entry_per_layer(self) -> Facts:
        """Lists over layers fit the depth: a report from elsewhere may say anything."""
        n = self.stream.depth + 1
        lists = {
            "stream.widths": self.stream.widths,
            "stability.per_layer": self.stability.per_layer,
            **_per_layer("proof", self.proof, "swap", "gradient"),
            **_per_layer("scale", self.scale, "mean", "median"),
            **_per_layer(
                "reference", self.reference, "per_sample", "batch_mean_128", "clamp_batch_size", "zero_samples"
            ),
            **_per_layer("alignment", self.alignment, "mean", "std", "measurable", "under_floor", "credit_norm"),
            **_per_layer("concentration", self.concentration, "share"),
            **_per_layer("profile", self.profile, "curve", "twin"),
        }
        for name, fact in (("perturbation", self.perturbation), ("nudging", self.nudging)):
            for whose in ("credit", "reference", "random"):
                lists |= _per_layer(f"{name}.{whose}", getattr(fact, whose, None), "mean", "std", "measurable")
        for name, values in lists.items():
            if len(values) != n:
                raise ValueError(f"{name} has {len(values)} entries for {n} layers (depth {n - 1})")
        if self.alignment is not None and not set(self.alignment.counting_layers) <= set(range(n)):
            raise ValueError(f"alignment.counting names a layer that is not there (layers 0 to {n - 1})")
        return self


def _per_layer(name: str, fact: Fact | None, *fields: str) -> dict[str, tuple[object, ...]]:
    return {} if fact is None else {f"{name}.{field}": getattr(fact, field) for field in fields}
