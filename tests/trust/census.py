"""A census of Hugging Face architectures: every one from a tiny configuration with random weights, nothing downloaded.

    python tests/trust/census.py [--write docs/census.md] [--log FILE] [MODEL_TYPE ...]

`find_blocks` and `diagnose` see each as a user would; what they say is held against plain hooks with `retain_grad` on a float64
copy (float32 where the network has no float64). An architecture is *equal* (every norm of h_l and g_l, loss and accuracy to
1e-4), *refused* in one line, or *wrong*. One that does not run from a tiny configuration is *not run*, and does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from tests.trust.oracle import Pass as OraclePass
from tests.trust.oracle import WrongError, cast, eval_copy, expected, losses, same
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from creditscope import CreditscopeError, diagnose, find_blocks

HEADS = (
    ("CAUSAL_LM", "text, causal"),
    ("MASKED_LM", "text, masked"),
    ("SEQ_TO_SEQ_CAUSAL_LM", "encoder-decoder"),
    ("SEQUENCE_CLASSIFICATION", "text, classifier"),
    ("IMAGE_CLASSIFICATION", "vision"),
    ("VIDEO_CLASSIFICATION", "video"),
    ("AUDIO_CLASSIFICATION", "audio"),
    ("CTC", "audio, CTC"),
    ("SPEECH_SEQ_2_SEQ", "audio, encoder-decoder"),
    ("TOKEN_CLASSIFICATION", "text, tokens"),
    ("SEMANTIC_SEGMENTATION", "vision, segmentation"),
)
"""Heads in the order of preference: an architecture is taken once."""
SAMPLES, LENGTH, SECONDS, LARGEST = 5, 8, 90, 6_000_000
TOLERANCE = 1e-4

SIZES: dict[int, tuple[str, ...]] = {
    3: ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
        "num_encoder_layers"),
    32: ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size",
         "moe_intermediate_size", "shared_expert_intermediate_size", "hidden_dim", "vocab_size", "dim_feedforward",
         "shared_intermediate_size", "expert_ffn_hidden_size", "dense_intermediate_size", "intermediate_size_mlp",
         "entity_vocab_size", "moe_shared_expert_intermediate_size", "vocab_size_per_layer_input", "d_inner",
         "block_ff_dim", "mlp_hidden_size"),
    8: ("head_dim", "d_kv", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank", "d_head",
        "mamba_d_head", "mamba_headdim", "kda_head_dim", "attention_head_size", "linear_key_head_dim", "linear_value_head_dim",
        "patch_size",
        "global_head_dim", "swa_head_dim", "num_conv_pos_embeddings", "hidden_size_per_layer_input", "index_head_dim"),
    4: ("num_experts", "num_local_experts", "n_routed_experts", "state_size", "time_step_rank", "mamba_d_state",
        "mamba_n_heads", "mamba_num_heads", "moe_num_experts", "ssm_state_size", "num_labels",
        "rotary_dim", "attention_window", "linear_num_value_heads", "mamba_d_conv"),
    2: ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "num_experts_per_tok", "moe_topk", "moe_k",
        "num_conv_pos_embedding_groups", "multi_query_group_num", "linear_num_key_heads", "swa_num_attention_heads",
        "swa_num_key_value_heads", "num_global_key_value_heads", "window_size", "experts_per_token",
        "encoder_num_attention_heads",
        "index_n_heads", "num_memory_blocks", "n_heads_kv", "moe_top_k"),
    1: ("n_group", "topk_group", "n_shared_experts", "num_shared_experts", "mamba_n_groups", "n_groups", "first_k_dense_replace",
        "num_hidden_groups", "bos_token_id", "decoder_start_token_id", "moe_num_shared_experts"),
    0: ("pad_token_id", "num_nextn_predict_layers"),
    64: ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx", "image_size", "max_source_positions",
         "max_target_positions", "max_seq_len", "original_max_position_embeddings", "sliding_window"),
}  # fmt: skip
WIDTHS = (
    *("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "d_embed", "emb_dim"),
    *("word_embed_proj_dim", "attention_hidden_size", "encoder_hidden_dim", "expert_dim", "classifier_proj_size"),
    *("encoder_hidden_size", "decoder_hidden_size", "output_hidden_size", "lru_width", "d_embedding", "attention_size"),
    *("hidden_sizes", "embed_dims", "encoder_embed_dims", "bottleneck_size"),
)
LISTS = {"depths": 2, "num_attention_heads": 2, "num_heads": 2, "encoder_num_heads": 2, "num_attention_heads_list": 2}
VARIANTS: tuple[dict[str, Any], ...] = (
    {"width": 16},
    {"width": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "n_head": 4, "num_heads": 4, "head_dim": 8},
    {"width": 16, "patch_size": 4, "image_size": 32},
    {"width": 32, "num_heads": 8, "head_dim": 8, "n_groups": 1, "patch_size": 16, "hidden_dim": 32},
    {"width": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    {
        "width": 16,
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "num_experts_per_tok": 2,
        "vocab_size": 32,
    },
    {"width": 16, "num_hidden_layers": 4, "use_cache": False, "num_experts_per_tok": 2},
)
"""Tried one after the other until the network runs."""


@dataclass(frozen=True)
class Line:
    """One architecture of the census."""

    architecture: str
    head: str
    kind: str
    outcome: str
    """equal, refused, wrong or not run."""
    note: str
    blocks: int = 0
    read: str = ""


# ---- the network ---------------------------------------------------------------------------------------------------


def architectures() -> dict[str, tuple[str, str]]:
    """model_type -> (class with a head, what kind it is)."""
    from transformers.models.auto import modeling_auto

    found: dict[str, tuple[str, str]] = {}
    for head, kind in HEADS:
        for name, made in getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").items():
            found.setdefault(name, (made[0] if isinstance(made, tuple) else made, kind))
    return dict(sorted(found.items()))


def small(default: Any, variant: dict[str, Any]) -> dict[str, Any]:
    """The options that make a configuration tiny; sub-configurations alike."""
    table = {name: size for size, names in SIZES.items() for name in names} | variant
    table |= dict.fromkeys(WIDTHS, variant["width"])
    options: dict[str, Any] = {}
    for name, value in default.to_dict().items():
        if name in ("attn_implementation", "experts_implementation"):
            continue
        held = getattr(default, name, None)
        if hasattr(held, "to_dict"):
            options[name] = small(held, variant)
        elif isinstance(value, list) and value and all(type(v) is int for v in value) and name in (*WIDTHS, *LISTS):
            options[name] = (
                [LISTS[name]] * len(value) if name in LISTS else [table["width"] * 2**k for k in range(len(value))]
            )
        elif name in table and (value is None or type(value) in (int, float, bool)):
            options[name] = None if value is None and name not in variant else table[name]
    return {name: value for name, value in options.items() if value is not None}


def built(name: str, variant: dict[str, Any]) -> nn.Module:
    """A model with weights large enough that every layer matters."""
    import transformers

    kind = getattr(transformers, architectures()[name][0])
    config = kind.config_class(**small(kind.config_class(), variant))
    config._attn_implementation = "eager"
    with torch.device("meta"):
        size = sum(p.numel() for p in kind(config).parameters())
    if size > LARGEST:
        raise MemoryError(f"{size:,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model: nn.Module = kind(config)
        with torch.no_grad():
            for path, p in model.named_parameters():
                if p.is_floating_point() and "layer_scale" not in path and "A_log" not in path:
                    p.add_(0.05 * torch.randn_like(p))
    return model.float().eval()


def inputs_of(model: Any) -> Iterator[dict[str, Tensor]]:
    """What the model may take, the likeliest first."""
    gen = torch.Generator().manual_seed(3)
    config, main = model.config, model.main_input_name
    n = SAMPLES
    if main == "input_ids":
        ids = torch.randint(4, 32, (n, LENGTH), generator=gen)
        if getattr(config, "is_encoder_decoder", False):
            yield {"input_ids": ids, "decoder_input_ids": torch.randint(4, 32, (n, LENGTH), generator=gen)}
        yield {"input_ids": ids}
        yield {"input_ids": ids, "token_type_ids": torch.zeros_like(ids)}
        yield {"input_ids": torch.randint(4, 32, (n, 2 * LENGTH), generator=gen)}
        return
    extra = (
        {"decoder_input_ids": torch.randint(4, 32, (n, LENGTH), generator=gen)}
        if getattr(config, "is_encoder_decoder", False)
        else {}
    )
    if main == "pixel_values":
        size = getattr(config, "image_size", None) or getattr(config, "input_size", None) or 32
        size = size[0] if isinstance(size, list | tuple) else size
        channels = getattr(config, "num_channels", 3)
        for side in (size, 32, 64):
            yield {"pixel_values": torch.randn(n, channels, side, side, generator=gen)} | extra
        frames = getattr(config, "num_frames", 2)
        yield {"pixel_values": torch.randn(n, frames, channels, size, size, generator=gen)}
    elif main == "input_values":
        yield {"input_values": torch.randn(n, 1600, generator=gen)} | extra
        yield {
            "input_values": torch.randn(
                n, getattr(config, "max_length", 64), getattr(config, "num_mel_bins", 16), generator=gen
            )
        }
    elif main == "input_features":
        bins = getattr(config, "num_mel_bins", 0) or getattr(config, "feature_projection_input_dim", 16)
        for shape in ((n, bins, 128), (n, 40, bins), (n, bins, 2 * getattr(config, "max_source_positions", 32))):
            yield {"input_features": torch.randn(shape, generator=gen)} | extra


def batch_of(model: nn.Module) -> dict[str, Tensor]:
    """A batch that the model runs on, with labels that fit its logits."""
    why = ""
    for inputs in inputs_of(model):
        try:
            with torch.no_grad():
                logits = model(**inputs).logits
        except Exception as error:  # the next form is tried; the first reason is told
            why = why or f"{type(error).__name__}: {error}"
            continue
        if logits.dim() in (2, 3) and len(logits) == SAMPLES and logits.shape[-1] > 1 and bool(logits.isfinite().all()):
            y = torch.randint(logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(5))
            return {**inputs, "labels": y}
        why = why or f"its logits are {list(logits.shape)}"
    raise ValueError(" ".join((why or "no inputs are known for it").split()))


# ---- the second computation ----------------------------------------------------------------------------------------


def first_state(tree: Any, before: Tensor | None = None) -> Tensor:
    """What the block before gave, if it is there; else the first tensor with the samples as one of its first two axes."""
    tensors = [t for t in tree_flatten(tree)[0] if isinstance(t, Tensor) and t.is_floating_point()]
    for t in [*(t for t in tensors if t is before), *tensors]:
        if t.dim() > 1 and SAMPLES in t.shape[:2]:
            return t
    raise WrongError("a block was called without a state")


def by_calls(model: nn.Module, batch: dict[str, Tensor], blocks: list[str], dtype: torch.dtype) -> OraclePass:
    """What enters every call of the named modules, and what the last call gives back; gradients by `retain_grad`."""
    twin = eval_copy(model, dtype)
    states: list[Tensor] = []
    last: list[Tensor] = []

    def enter(_: Any, args: Any, kwargs: Any) -> None:
        h = first_state((*args, kwargs.get("hidden_states"), kwargs), last[0] if last else None)
        if not h.requires_grad:
            h.requires_grad_()
        h.retain_grad()
        states.append(h)

    def leave(_: Any, args: Any, out: Any) -> None:
        last[:] = [first_state(out)]

    for name in blocks:
        twin.get_submodule(name).register_forward_pre_hook(enter, with_kwargs=True)
        twin.get_submodule(name).register_forward_hook(leave)
    logits = twin(**cast({k: v for k, v in batch.items() if k != "labels"}, dtype)).logits
    last[0].retain_grad()
    losses(logits, batch["labels"]).sum().backward()
    order = [*states, last[0]]
    grads = [torch.zeros_like(h) if h.grad is None else h.grad for h in order]
    return OraclePass([h.detach() for h in order], grads, logits.detach(), batch["labels"])


def truth_of(model: nn.Module, batch: dict[str, Tensor], blocks: list[str]) -> OraclePass:
    try:
        found = by_calls(model, batch, blocks, torch.float64)
        if bool(found.logits.isfinite().all()):
            return found
    except RuntimeError:  # float32 is written into its code
        pass
    return by_calls(model, batch, blocks, torch.float32)


def compared(model: nn.Module, batch: dict[str, Tensor]) -> tuple[int, str]:
    """(number of blocks, read), where everything is equal; raises what is wrong, or the refusal."""
    blocks = find_blocks(model, dict(batch))
    facts = diagnose(model, [dict(batch)], shift_labels=False if batch["labels"].dim() == 2 else None).facts
    if list(dict.fromkeys(facts.stream.blocks)) != blocks:
        raise WrongError(f"diagnose takes other blocks ({facts.stream.blocks}) than find_blocks")
    truth = truth_of(model, batch, blocks)
    if facts.stream.depth != len(truth.states) - 1:
        raise WrongError(f"depth {facts.stream.depth}, in truth {len(truth.states) - 1}")
    batch_dim = 0 if truth.states[0].shape[0] == SAMPLES else 1
    wanted = expected([truth], facts.stream.read, batch_dim, None)
    same("loss", [facts.loss], [wanted["loss"]], TOLERANCE)
    same("accuracy", [facts.accuracy], [wanted["accuracy"]], 1e-9)
    same("h", facts.scale.mean, wanted["h"], TOLERANCE)
    same("g", facts.reference.per_sample, wanted["g"], TOLERANCE)
    return facts.stream.depth, facts.stream.read


# ---- the census ----------------------------------------------------------------------------------------------------


class TooLongError(Exception):
    """An architecture took too long to build and to run."""


@contextlib.contextmanager
def quiet(seconds: int) -> Iterator[None]:
    """Nothing is printed, and nothing takes longer than that."""

    def stop(*_: Any) -> None:
        raise TooLongError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def prepared(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model and a batch for it, by the first variant that runs."""
    first: Exception | None = None
    for variant in VARIANTS:
        try:
            model = built(name, variant)
            return model, batch_of(model)
        except TooLongError:
            raise
        except Exception as error:  # the next variant is tried; the first reason is told
            first = first or error
    assert first is not None
    raise first


def judged(name: str, seconds: int = SECONDS) -> Line:
    """One architecture."""
    head, kind = architectures()[name]

    def line(outcome: str, note: str, blocks: int = 0, read: str = "") -> Line:
        return Line(name, head, kind, outcome, " ".join(note.split())[:300], blocks, read)

    with quiet(seconds):
        try:
            model, batch = prepared(name)
        except Exception as error:  # whatever a foreign library raises: it does not count
            return line("not run", f"{type(error).__name__}: {error}"[:160])
        try:
            return line("equal", "", *compared(model, batch))
        except CreditscopeError as error:
            return line("refused" if "\n" not in str(error) else "wrong", str(error))
        except WrongError as error:
            return line("wrong", str(error))
        except TooLongError as error:
            return line("not run", str(error))
        except Exception as error:  # anything but one line of ours is wrong
            return line("wrong", f"{type(error).__name__}: {error}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*")
    parser.add_argument("--write", type=Path, help="page whose table is written anew")
    parser.add_argument(
        "--log", type=Path, help="one JSON line per architecture; those that are there already are kept"
    )
    parser.add_argument("--seconds", type=int, default=SECONDS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kept: dict[str, Line] = {}
    if options.log and options.log.exists():
        kept = {row["architecture"]: Line(**row) for row in map(json.loads, options.log.read_text().splitlines())}
    lines = []
    for name in options.architectures or architectures():
        one = kept.get(name) or judged(name, options.seconds)
        lines.append(one)
        print(f"{one.architecture} | {one.outcome} | {one.note}", flush=True)
        if options.log and name not in kept:
            with options.log.open("a") as log:
                log.write(json.dumps(asdict(one)) + "\n")
    count = Counter(one.outcome for one in lines)
    print(f"{sum(count.values())} architectures: {dict(count)}")
    if options.write:
        from tests.trust.census_page import written

        options.write.write_text(written(options.write.read_text(), lines))
    return int(count["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
