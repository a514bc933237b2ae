"""The embedded default task, the quadratic teacher: generated in under a second, no file, the same on every machine.

x ~ N(0, I_48), ten classes, label = argmax_c (x' A_c x - E_c) / S_c + 0.5 w_c . x, where A_c is Gaussian,
w_c ~ N(0, I/48), and E_c, S_c are mean and standard deviation of the form. A quadratic form is invisible to a linear
probe, so trained blocks have something to gain over random ones; the linear part gives every method a start.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from creditscope.data.dataset import Array, Dataset, of_vectors

DIM, N_CLASSES, N_TRAIN, N_TEST = 48, 10, 20_000, 4_000
LINEAR_WEIGHT = 0.5
SEED = 48


@cache
def load_quadratic() -> Dataset:
    """20,000 train and 4,000 test samples, float32 [N, 48]; made once per process."""
    x, forms, linear = draw_teacher()
    return of_vectors("quadratic", x, teacher_scores(x, forms, linear), N_TRAIN)


def draw_teacher() -> tuple[Array, Array, Array]:
    """Inputs [24000, 48], forms A [10, 48, 48] and linear map w [10, 48], all float64 from one fixed seed."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    forms = rng.standard_normal((N_CLASSES, DIM, DIM))
    linear = rng.standard_normal((N_CLASSES, DIM)) / np.sqrt(DIM)
    return rng.standard_normal((N_TRAIN + N_TEST, DIM)), forms, linear


def teacher_scores(x: Array, forms: Array, linear: Array) -> Array:
    """Class scores [N, C]; each form has mean 0 and variance 1 over N(0, I) in closed form: tr A and 2 |sym A|_F^2."""
    symmetric = (forms + forms.transpose(0, 2, 1)) / 2
    means = np.trace(symmetric, axis1=1, axis2=2)
    stds = np.sqrt(2 * (symmetric**2).sum(axis=(1, 2)))
    quadratic = np.stack([((x @ form) * x).sum(axis=1) for form in symmetric], axis=1)
    scores: Array = (quadratic - means) / stds + LINEAR_WEIGHT * (x @ linear.T)
    return scores
