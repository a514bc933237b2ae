"""Hugging Face ViT and GPT-2 trained by backpropagation, as controls: python board/recipes/transformers_bp.py [OUT]

Tiny configurations, built by transformers and trained by a plain loop, unmodified. ViT reads the embedded data set as an image of
3 x 4 x 4 pixels; GPT-2 reads sequences made up here: each token is the sum of the two before it (modulo 17), the first two are
random. Null: the same loop on `frozen_blocks` of the model. A pass is expected: backpropagation trains the blocks. Some minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from common import out_of, put
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification, __version__

from creditscope import certify, diagnose, frozen_blocks
from creditscope.data import load_dataset

SEEDS = (0, 1, 2)
WORDS, LENGTH = 17, 12


def vit() -> nn.Module:
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64, image_size=4, patch_size=2,
        num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    return ViTForImageClassification(config)


def gpt2() -> nn.Module:
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=4, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def sums(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Sequences x_t = x_(t-1) + x_(t-2) mod 17, and their labels: -100 where the next token cannot be known."""
    x = torch.randint(0, WORDS, (n, LENGTH), generator=torch.Generator().manual_seed(seed))
    for t in range(2, LENGTH):
        x[:, t] = (x[:, t - 1] + x[:, t - 2]) % WORDS
    labels = x.clone()
    labels[:, :2] = -100
    return x, labels


def right(logits: Tensor, y: Tensor) -> Tensor:
    """Share of right answers of each sample; of a language model over the tokens that can be known."""
    if logits.ndim == 2:
        return (logits.argmax(1) == y).double()
    guess, wanted = logits[:, :-1].argmax(-1), y[:, 1:]
    return ((guess == wanted) & (wanted != -100)).sum(1) / (wanted != -100).sum(1).double()


def loss(logits: Tensor, y: Tensor) -> Tensor:
    if logits.ndim == 2:
        return nn.functional.cross_entropy(logits, y)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), y[:, 1:].flatten())


def trained(model: nn.Module, x: Tensor, y: Tensor, epochs: int, rate: float, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            loss(model(x[batch]).logits, y[batch]).backward()
            optimizer.step()
    return model.eval()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float(
            torch.cat([right(model(a).logits, b) for a, b in zip(x.split(500), y.split(500), strict=True)]).mean()
        )


def audit(name: str, build: Any, fit: Any, test: Any, out: Path, *, epochs: int, rate: float, **said: str) -> None:
    networks, nulls = [], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = build()
        null = frozen_blocks(model, example=fit[0][:4], seed=seed, build=build)
        networks.append(trained(model, *fit, epochs, rate, seed))
        nulls.append(accuracy(trained(null, *fit, epochs, rate, seed), *test))
    found = [accuracy(m, *test) for m in networks]
    batches = [(a, b) for a, b in zip(test[0][:1024].split(128), test[1][:1024].split(128), strict=True)]
    report = diagnose(
        networks[0],
        batches,
        headline_acc=found,
        network_acc=found[0],
        frozen_baseline_acc={"matched": nulls},
        n_test=len(test[0]),
        method_name=f"backpropagation ({name})",
        notes=said["architecture"],
        build=build,
        fit_batches=[(a, b) for a, b in zip(fit[0][:4000].split(500), fit[1][:4000].split(500), strict=True)],
    )

    def update(model: nn.Module, batch: Any) -> None:
        model.zero_grad()
        loss(model(batch[0]).logits, batch[1]).backward()

    report = report.with_certificate(certify(update, networks[0], (test[0][:8], test[1][:8])))
    fields = {
        "method": f"backpropagation, {name} (control)",
        "code": {
            "name": "transformers",
            "version": __version__,
            "url": "https://github.com/huggingface/transformers",
            "licence": "Apache-2.0",
        },
        "architecture": said["architecture"],
        "data": said["data"],
        "claimed": {
            "accuracy": sum(found) / len(found),
            "convention": f"mean over {len(SEEDS)} seeds, {len(test[0]):,} test samples; measured here, not published",
            "source": "the run itself: what accuracy alone would have said",
        },
        "note": "a control: backpropagation is expected to train the blocks",
    }
    put(
        f"transformers-{name.lower()}-bp",
        fields,
        [report],
        out,
        seeds=SEEDS,
        nulls={"matched": nulls},
        recipe="python board/recipes/transformers_bp.py",
    )


def main(out: Path) -> None:
    torch.set_num_threads(1)
    data = load_dataset("quadratic")
    images = [(data.train_x.reshape(-1, 3, 4, 4), data.train_y), (data.test_x.reshape(-1, 3, 4, 4), data.test_y)]
    audit(
        "ViT", vit, *images, out, epochs=6, rate=1e-3,
        architecture="tiny ViT d=32, 4 layers, 6 epochs", data="embedded (quadratic) as 3x4x4 images",
    )  # fmt: skip
    audit(
        "GPT-2", gpt2, sums(4000, 1), sums(1000, 2), out, epochs=8, rate=3e-3,
        architecture="tiny GPT-2 d=32, 4 layers, 8 epochs", data="synthetic: sums modulo 17",
    )  # fmt: skip


if __name__ == "__main__":
    main(out_of())
