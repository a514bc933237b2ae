"""The matrix products of one training step, with their shapes: what no step in fp32 can do without."""

from __future__ import annotations

from collections.abc import Callable

import torch

from creditscope.training.spec import RunSpec

Product = tuple[int, int, int, int]
"""(b, m, k, n): b products of m x k by k x n."""
BATCH, INPUTS, CLASSES = 128, 3072, 10
HEADS, PATCH, SIZE = 4, 4, 32


def forward(spec: RunSpec) -> tuple[Product, list[list[Product]], Product]:
    """(embedding, the products of each block, head)."""
    d, depth = spec.width or 0, spec.depth or 0
    head = (1, BATCH, d, CLASSES)
    if spec.arch == "resmlp":
        return (1, BATCH, INPUTS, d), [[(1, BATCH, d, d), (1, BATCH, d, d)] for _ in range(depth)], head
    patches = (SIZE // PATCH) ** 2
    tokens, rows, ratio = patches + 1, BATCH * (patches + 1), spec.ratio or 1
    scores, values = (BATCH * HEADS, tokens, d // HEADS, tokens), (BATCH * HEADS, tokens, tokens, d // HEADS)
    block: list[Product] = [(1, rows, d, 3 * d), scores, values, (1, rows, d, d), (1, rows, d, ratio * d)]
    block.append((1, rows, ratio * d, d))
    return (1, BATCH * patches, 3 * PATCH**2, d), [block] * depth, head


def weights(product: Product) -> Product:
    """The product that gives the gradient of the right factor."""
    b, m, k, n = product
    return b, k, m, n


def back(product: Product) -> Product:
    """The product that carries the error to the left factor."""
    b, m, k, n = product
    return b, m, n, k


def products(spec: RunSpec) -> list[Product]:
    """Of one step by this spec's method: forward, gradients of the trained weights, and what carries the error to them."""
    embed, blocks, head = forward(spec)
    inner = [p for block in blocks for p in block]
    d, depth = spec.width or 0, spec.depth or 0
    feedback: dict[str, list[Product]] = {
        "bp": [],
        "fa": [(1, BATCH, d, d)] * depth,
        "dfa": [(1, BATCH, CLASSES, d)] * (1 if spec.frozen else depth + 1),
    }
    found = [embed, *inner, head, weights(embed), weights(head), back(head), *feedback[spec.method]]
    if spec.frozen and spec.method != "bp":
        return found
    if not spec.frozen or spec.arch != "resmlp":  # attention: both of its factors come from the input
        found += [weights(p) for p in inner if not spec.frozen or p[0] > 1]
    # by local credit a block needs no error at its input; behind a LayerNorm an MLP gets its scale and shift without it too
    local = spec.method != "bp" and spec.arch == "resmlp"
    return found + [back(p) for block in blocks for p in (block[1:] if local else block)]


def products_alone(shapes: list[Product]) -> Callable[[], None]:
    """They alone, into memory that is there already."""
    made = [
        (torch.randn(m, k), torch.randn(k, n), torch.empty(m, n))
        if b == 1
        else (torch.randn(b, m, k), torch.randn(b, k, n), torch.empty(b, m, n))
        for b, m, k, n in shapes
    ]

    def step() -> None:
        for a, b, out in made:
            (torch.mm if a.dim() == 2 else torch.bmm)(a, b, out=out)

    return step
