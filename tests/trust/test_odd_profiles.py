"""The depth profile and the certificate on odd networks: a few of those that `odd_profiles.py` takes as a command."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from tests.trust import odd_profiles
from tests.trust.odd_networks import judged
from tests.trust.oracle import WrongError

PROFILES = {case.name: case for case in odd_profiles.cases("profile")}
CERTIFICATES = {case.name: case for case in odd_profiles.cases("certify")}
EQUAL = ("usual", "residual=model_post", "shape=tokens pooling=mean tied=True", "blocks given in another order",
    "everything frozen", "Hugging Face: bert with padding")  # fmt: skip
REFUSED = {
    "shape=tokens pooling=last_real": "the head reads other tokens than 'last'",
    "noise in eval mode": "random in eval mode",
    "depth changes with the data": "its depth changes with the data",
    "a stream of two tensors": "the state is not one tensor",
}


@pytest.mark.parametrize("name", EQUAL)
def test_the_profile_of_an_odd_network_is_that_of_a_second_computation(name):
    found = judged(PROFILES[name])
    assert found.outcome == "exact", found.line


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_true_profile_is_refused(name):
    found = judged(PROFILES[name])
    assert found.outcome == "refused", found.line
    assert REFUSED[name] in found.line


@pytest.mark.parametrize("name", ["residual=model_post", "shape=tokens pooling=mean tied=True"])
def test_backpropagation_of_an_odd_network_has_its_own_label(name):
    found = judged(CERTIFICATES[name])
    assert (found.outcome, found.line) == ("exact", "")


def test_the_second_computation_sees_a_wrong_strength_and_a_wrong_count():
    y = np.arange(60) % 3
    x = (y[:, None] == np.arange(3)) + 0.1 * np.random.default_rng(0).normal(size=(60, 3))
    taken = []
    for k in range(-24, 9):
        with contextlib.suppress(WrongError):  # not the best by cross-validation
            taken.append(odd_profiles.by_svd(x, y, 10 ** (k / 4), x, y, 1e-3))
    assert taken  # at least the best one
    assert set(taken) == {(60, 60)}
    assert len(taken) < 33
    with pytest.raises(WrongError, match="the same for every sample"):
        odd_profiles.by_svd(x, y, None, x, y, 1e-3)
