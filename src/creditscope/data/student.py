"""The synthetic task of StudentNet: labels by a random residual teacher, phi_alpha(z) = (1 - alpha) z + alpha tanh z.

Fixed by the protocol: phi_alpha, alpha = 1, ten classes, d = 128. Published: .908 +- .009 with frozen random blocks,
.796 with BP, so the task is "solvable by a linear probe on random features" and cannot show depth utility. The rest
is ours, the simplest that has this property: x ~ N(0, I_128); h_0 = x, h_{l+1} = h_l + phi(W_l h_l) / 4 for 4 blocks,
W_l ~ N(0, 1/128); label = argmax over ten random unit directions of h_4; 20,000 train and 4,000 test samples.

The branch scale sets how nonlinear the task is. Measured (AdamW 1e-3, 20 epochs, one seed; embed, four tanh blocks,
head), frozen blocks and BP: scale 1/2 (one over the root of the depth) .857 and .840; 1/4 (one over the depth, taken)
.919 and .897 (BP after 100 epochs: .880). Frozen blocks win, as published, though by less than the published distance.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from creditscope.data.dataset import Array, Dataset, of_vectors

DIM, DEPTH, N_CLASSES, N_TRAIN, N_TEST = 128, 4, 10, 20_000, 4_000
ALPHA = 1.0
BRANCH_SCALE = 1 / DEPTH
SEED = 128


@cache
def load_student() -> Dataset:
    """20,000 train and 4,000 test samples, float32 [N, 128]; made once per process."""
    x, blocks, readout = draw_teacher()
    return of_vectors("student", x, teacher_scores(x, blocks, readout), N_TRAIN)


def phi(z: Array, alpha: float = ALPHA) -> Array:
    """The teacher's nonlinearity, elementwise: the identity at alpha = 0, tanh at alpha = 1."""
    return (1 - alpha) * z + alpha * np.tanh(z)


def draw_teacher() -> tuple[Array, Array, Array]:
    """Inputs [24000, 128], block weights [4, 128, 128] and unit-length readout rows [10, 128], float64, fixed seed."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    blocks = rng.standard_normal((DEPTH, DIM, DIM)) / np.sqrt(DIM)
    readout = rng.standard_normal((N_CLASSES, DIM))
    readout /= np.linalg.norm(readout, axis=1, keepdims=True)  # else the longest row wins too often
    return rng.standard_normal((N_TRAIN + N_TEST, DIM)), blocks, readout


def teacher_scores(x: Array, blocks: Array, readout: Array) -> Array:
    """Class scores [N, C] of inputs [N, 128]."""
    h = x
    for weight in blocks:
        h = h + BRANCH_SCALE * phi(h @ weight.T)
    scores: Array = h @ readout.T
    return scores
