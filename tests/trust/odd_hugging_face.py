"""Hugging Face models from tiny configurations with random weights; nothing is downloaded.

The oracle puts plain hooks on the layer modules that the model's own code names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from tests.trust.odd_parts import seeded
from tests.trust.oracle import EITHER, MARK, MEASURE, Batch, Case, Network, WrongError, by_hooks, check, network
from torch import Tensor, nn

from creditscope import find_blocks

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCABULARY, LENGTH, LABELS, WIDTH = 23, 6, 4, 8
SIZES = (11, 7)
SMALL = {"vocab_size": VOCABULARY, "num_labels": LABELS, "pad_token_id": 0}
TEXT = SMALL | {
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
}
GPT2 = SMALL | {"n_embd": WIDTH, "n_layer": 3, "n_head": 2, "n_positions": 16}
T5 = SMALL | {
    "d_model": WIDTH,
    "d_kv": 4,
    "d_ff": 16,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
}
BART = SMALL | {
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 16,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 1,
}
IMAGES = {"image_size": 8, "num_channels": 3, "num_labels": LABELS}
VIT = IMAGES | {
    "patch_size": 4,
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def model(name: str, options: dict[str, Any]) -> nn.Module:
    """A model with weights large enough that every layer matters."""
    import transformers

    kind = getattr(transformers, name)

    def make() -> nn.Module:
        made: nn.Module = kind(kind.config_class(**options))
        with torch.no_grad():
            for name, p in made.named_parameters():
                if "layer_scale" not in name:
                    p.add_(0.2 * torch.randn_like(p))
        return made

    return seeded(make)


def texts(padding: str, tokens: bool, end: int | None = None, decoder: bool = False) -> list[Batch]:
    """padding: "none", "right" or "left"; tokens: a label for each token; end: the last real token is this one."""
    gen = torch.Generator().manual_seed(3)
    found: list[Batch] = []
    for n in SIZES:
        ids = torch.randint(3, VOCABULARY, (n, LENGTH), generator=gen)
        lengths = torch.full((n,), LENGTH)
        if padding != "none":
            lengths = torch.randint(3, LENGTH + 1, (n,), generator=gen)
            lengths[:3] = LENGTH  # the first samples show no padding
        place = torch.arange(LENGTH)
        real = place < lengths.unsqueeze(1) if padding != "left" else place >= LENGTH - lengths.unsqueeze(1)
        if end is not None:
            ids[torch.arange(n), lengths - 1] = end
        ids = torch.where(real, ids, 0)
        y = torch.randint(LABELS, (n,), generator=gen)
        inputs: dict[str, Tensor] = {"input_ids": ids}
        if padding != "none":
            inputs["attention_mask"] = real.long()
        if decoder:
            inputs["decoder_input_ids"] = torch.randint(3, VOCABULARY, (n, LENGTH), generator=gen)
        if tokens:
            y = torch.where(real, torch.randint(VOCABULARY, (n, LENGTH), generator=gen), -100)
        found.append((inputs, y))
    return found


def images() -> list[Batch]:
    gen = torch.Generator().manual_seed(3)
    return [
        ({"pixel_values": torch.randn(n, 3, 8, 8, generator=gen)}, torch.randint(LABELS, (n,), generator=gen))
        for n in SIZES
    ]


def net(
    name: str, options: dict[str, Any], blocks: tuple[str, ...], batches: list[Batch], read: str, **known: Any
) -> Network:
    """`named=False` lets creditscope find the blocks; `dtype` is that of the oracle."""
    named, dtype = known.pop("named", True), known.pop("dtype", torch.float64)
    tokens = batches[0][1].dim() == 2
    return Network(
        model(name, options),
        batches,
        list(blocks) if named else None,
        passes=lambda m, given: by_hooks(m, given, blocks, dtype),
        read=read,
        false_alarms="none" if "attention_mask" in batches[0][0] else "swap",
        given=[{**inputs, "labels": y} for inputs, y in batches],
        names=None if named else blocks,
        by_label=not tokens,
        options={"shift_labels": False} if tokens else {},
        **known,
    )


def layers(pattern: str, *counts: int) -> tuple[str, ...]:
    """ "h.{}", 3 -> h.0, h.1, h.2; with two places, every pair."""
    if len(counts) == 1:
        return tuple(pattern.format(k) for k in range(counts[0]))
    return tuple(pattern.format(k, j) for k in range(counts[0]) for j in range(counts[1]))


CASES: list[Case] = []


def add(name: str, build: Callable[..., Network], expect: str = MEASURE, *classes: int, found: bool = True) -> None:
    """One case with the blocks named, and (`found`) one in which they are looked for."""
    CASES.append(network(f"Hugging Face: {name}", build, expect, classes))
    if found:
        searched = EITHER if expect == MARK else expect
        CASES.append(
            network(f"Hugging Face: {name}, blocks not named", lambda: build(named=False), searched, (*classes, 8))
        )


BERT = layers("bert.encoder.layer.{}", 3)
add("bert", lambda **k: net("BertForSequenceClassification", TEXT, BERT, texts("none", False), "cls", **k))
add("bert with padding", lambda **k: net("BertForSequenceClassification", TEXT, BERT, texts("right", False), "cls",
    **k), MEASURE, 10)  # fmt: skip
add("distilbert with padding", lambda **k: net("DistilBertForSequenceClassification", SMALL | {"dim": WIDTH,
    "n_layers": 3, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 16},
    layers("distilbert.transformer.layer.{}", 3), texts("right", False), "cls", **k))  # fmt: skip
H = layers("transformer.h.{}", 3)
add("gpt2 classifier", lambda **k: net("GPT2ForSequenceClassification", GPT2, H, texts("none", False), "last", **k),
    MEASURE, 7)  # fmt: skip
add("gpt2 classifier with padding on the right", lambda **k: net("GPT2ForSequenceClassification", GPT2, H,
    texts("right", False), "flatten", **k), MEASURE, 7)  # fmt: skip
add("gpt2 classifier with padding on the left", lambda **k: net("GPT2ForSequenceClassification", GPT2, H,
    texts("left", False), "last", **k), MEASURE, 7)  # fmt: skip
add("gpt2 language model", lambda **k: net("GPT2LMHeadModel", GPT2, H, texts("none", True), "flatten", **k))
add("gpt2 language model with padding", lambda **k: net("GPT2LMHeadModel", GPT2, H, texts("right", True), "flatten",
    **k), MEASURE, 10)  # fmt: skip
LLAMA = layers("model.layers.{}", 3)
add("llama language model", lambda **k: net("LlamaForCausalLM", TEXT, LLAMA, texts("none", True), "flatten", **k))
add("llama classifier with padding", lambda **k: net("LlamaForSequenceClassification", TEXT, LLAMA, texts("right",
    False), "flatten", **k), MEASURE, 7)  # fmt: skip
add(
    "mixtral language model",
    lambda **k: net(
        "MixtralForCausalLM",
        TEXT | {"num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1},
        LLAMA,
        texts("none", True),
        "flatten",
        dtype=torch.float32,  # its experts have no float64
        **k,
    ),
)
add("gpt-neox classifier (parallel residual)", lambda **k: net("GPTNeoXForSequenceClassification", TEXT,
    layers("gpt_neox.layers.{}", 3), texts("none", False), "last", **k))  # fmt: skip


def beside(kind: str, options: dict[str, Any], named: str, **more: Any) -> Network:
    """One side of an encoder and a decoder; the other is given to its blocks beside their state."""
    texted = texts("none", True, decoder=True)
    return net(kind, options, layers(named, 2), texted, "flatten", marks=("beside",), **more)


for _name, _class, _options, _layers in (
    ("t5 decoder", "T5ForConditionalGeneration", T5, "decoder.block.{}"),
    ("t5 encoder", "T5ForConditionalGeneration", T5, "encoder.block.{}"),
    ("bart decoder", "BartForConditionalGeneration", BART, "model.decoder.layers.{}"),
):
    add(_name, partial(beside, _class, _options, _layers), MARK, 8, 3, found=False)
add(
    "t5 token classifier (encoder only)",
    lambda **k: net(
        "T5ForTokenClassification", T5 | {"num_labels": VOCABULARY}, layers("transformer.encoder.block.{}", 2),
        texts("right", True), "flatten", **k,
    ),
    MEASURE, 8,
)  # fmt: skip
add(
    "bart classifier, decoder",
    lambda **k: net(
        "BartForSequenceClassification", BART, layers("model.decoder.layers.{}", 2), texts("none", False, end=1), "last",
        marks=("beside",), **k,
    ),
    MARK, 3, 7, found=False,
)  # fmt: skip
add("vit", lambda **k: net("ViTForImageClassification", VIT, layers("vit.layers.{}", 3), images(), "cls", **k))
add("deit", lambda **k: net("DeiTForImageClassification", VIT, layers("deit.layers.{}", 3), images(), "cls", **k))
STAGED = IMAGES | {"hidden_sizes": [WIDTH, 2 * WIDTH], "depths": [2, 2]}
add("resnet", lambda **k: net("ResNetForImageClassification", STAGED | {"embedding_size": WIDTH,
    "layer_type": "basic", "downsample_in_first_stage": False}, layers("resnet.encoder.stages.{}.layers.{}", 2, 2),
    images(), "flatten", **k), MEASURE, 8)  # fmt: skip
add("convnext", lambda **k: net("ConvNextForImageClassification", STAGED | {"num_stages": 2, "patch_size": 2,
    "layer_scale_init_value": 0.5}, layers("convnext.encoder.stages.{}.layers.{}", 2, 2), images(), "flatten", **k),
    MEASURE, 8)  # fmt: skip
add("convnext at its layer scale of 1e-6", lambda **k: net("ConvNextForImageClassification",
    STAGED | {"num_stages": 1, "depths": [3], "hidden_sizes": [WIDTH], "patch_size": 2},
    layers("convnext.encoder.stages.0.layers.{}", 3), images(), "flatten", **k), MEASURE, 1)  # fmt: skip
add("swin", lambda **k: net("SwinForImageClassification", IMAGES | {"patch_size": 1, "embed_dim": WIDTH, "depths": [2,
    2], "num_heads": [2, 2], "window_size": 2}, layers("swin.encoder.layers.{}.blocks.{}", 2, 2), images(), "mean",
    **k), MEASURE, 8)  # fmt: skip
add("mamba language model", lambda **k: net("MambaForCausalLM", SMALL | {"hidden_size": WIDTH, "num_hidden_layers": 3,
    "state_size": 4, "time_step_rank": 2}, layers("backbone.layers.{}", 3), texts("none", True), "flatten", **k))  # fmt: skip


def either_side(name: str, options: dict[str, Any], sides: tuple[tuple[str, ...], ...]) -> str:
    """Encoder or decoder: whole blocks of one of them, and the numbers that belong to it."""
    batches = texts("none", True, decoder=True)
    with torch.random.fork_rng(devices=[]):
        found = tuple(find_blocks(model(name, options), {**batches[0][0], "labels": batches[0][1]}))
    if found not in sides:
        raise WrongError(f"the blocks that were found are {found}")
    return check(net(name, options, found, batches, "flatten", marks=("beside",)))


for _depth in (1, 2, 3):
    for _name, _class, _options, _layers in (
        ("t5", "T5ForConditionalGeneration", T5 | {"num_layers": _depth}, "{}.block.{{}}"),
        (
            "bart",
            "BartForConditionalGeneration",
            BART | {"encoder_layers": _depth, "decoder_layers": _depth},
            "model.{}.layers.{{}}",
        ),
    ):
        _sides = tuple(layers(_layers.format(side), _depth) for side in ("decoder", "encoder"))
        _case = partial(either_side, _class, _options, _sides)
        CASES.append(Case(f"Hugging Face: {_name}, L={_depth}, blocks not named", _case, EITHER, (8,)))
