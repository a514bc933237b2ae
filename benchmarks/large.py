"""`diagnose`, level basic, where a few samples are much work: against one plain forward + backward over the same data.

    OMP_NUM_THREADS=1 python -m benchmarks.large [ROUNDS]

GPT-2 small (124 M parameters, random weights), two batches of 2 x 256 tokens: time and peak memory; eight batches: time, once.
24 layers of width 1024, one batch of 2 x 256 tokens: peak memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.bench_diagnose import peak_bytes, seconds
from benchmarks.harness import Row, text
from creditscope import diagnose

GROUP = "diagnose, level basic, large"
GPT2: dict[str, Any] = {}
DEEP: dict[str, Any] = {
    "n_layer": 24,
    "n_embd": 1024,
    "n_head": 16,
    "vocab_size": 1000,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def prepared(options: dict[str, Any], batches: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """(plain forward + backward, diagnose) of a language model over batches of 2 x 256 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(**options)
    model: Any = GPT2LMHeadModel(config).eval()
    data = [torch.randint(0, config.vocab_size, (2, 256)) for _ in range(batches)]
    given = [{"input_ids": ids, "labels": ids} for ids in data]

    def plain() -> None:
        for batch in given:
            model.zero_grad(set_to_none=True)
            model(**batch).loss.backward()
        model.zero_grad(set_to_none=True)

    def ours() -> None:
        diagnose(model, given)

    return plain, ours


def run(rounds: int) -> list[Row]:
    plain, ours = prepared(GPT2, 2)
    pairs = [(seconds(plain), seconds(ours)) for _ in range(rounds)]
    ratios = sorted(b / a for a, b in pairs)
    best = min(b for _, b in pairs) / min(a for a, _ in pairs)
    rows = [Row(GROUP, "time, GPT-2 small", "forward + backward", best, ratios[len(ratios) // 2], 1.3)]
    print(text(rows), flush=True)
    longer = prepared(GPT2, 8)
    plain_seconds, our_seconds = (seconds(call) for call in longer)
    more = our_seconds / plain_seconds
    rows.append(Row(GROUP, "time, GPT-2 small, 8 batches", "forward + backward", more, more, None))
    print(text(rows[-1:]), flush=True)
    for name, (theirs, own) in {
        "GPT-2 small": (plain, ours),
        "24 layers, d=1024, 512 tokens": prepared(DEEP, 1),
    }.items():
        memory = peak_bytes(own, first=False) / peak_bytes(theirs, first=False)
        rows.append(Row(GROUP, f"peak memory, {name}", "forward + backward", memory, memory, 1.1))
        print(text(rows[-1:]), flush=True)
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(text(run(int(sys.argv[1]) if len(sys.argv) > 1 else 3)))
