"""Spec -> network, by the seed alone (the global RNG is not touched)."""

from __future__ import annotations

import torch
from torch import Tensor

from creditscope.models import ResMLP, SmallCNN, StudentNet, ViTMini
from creditscope.models.parts import StreamModel
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.untouched import untouched
from creditscope.training.spec import RunSpec


def derived_seed(seed: int, *words: int) -> int:
    """A seed for one purpose (feedback, epoch 7, ...) of a run: distinct words give unrelated streams."""
    mixed = seed & 0xFFFFFFFF
    for word in words:  # splitmix64
        mixed = (mixed * 0x9E3779B97F4A7C15 + word + 1) & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 30
        mixed = (mixed * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 27
    return mixed >> 1


FEEDBACK, EPOCH, TARGETS = 1, 2, 3
"""First word of `derived_seed` for each purpose."""


def build_model(spec: RunSpec, input_shape: tuple[int, ...], n_classes: int) -> StreamModel:
    """The network at its initialisation: the same for every method with the same architecture and seed."""
    width, depth, ratio, terminal_norm = spec.shape
    n_in = int(torch.Size(input_shape).numel())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(spec.seed)  # the CPU's alone
        if spec.arch == "resmlp":
            return ResMLP(n_in, n_classes, width, depth, ratio, terminal_norm)
        if spec.arch == "student":
            return StudentNet(n_in, n_classes, width, depth, ratio, terminal_norm)
        if spec.arch == "vit-mini":
            return ViTMini(n_classes, width, depth, ratio, terminal_norm=terminal_norm)
        return SmallCNN(n_classes, width)


def build_stream(model: StreamModel, example: Tensor) -> InterfaceStream:
    with untouched(model):
        return InterfaceStream(model, example)
