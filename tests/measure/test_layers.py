"""`layers=`: level full at some layers gives there what it gives at all of them; and how long it takes is said before."""

from __future__ import annotations

import io

import pytest
import torch

from creditscope import CreditscopeError, diagnose
from creditscope.credit import BP
from creditscope.measure.progress import Progress, spoken
from creditscope.models import ResMLP, SmallCNN


def batch(shape: tuple[int, ...], n: int = 12) -> list[tuple[torch.Tensor, torch.Tensor]]:
    gen = torch.Generator().manual_seed(0)
    return [(torch.randn(n, *shape, generator=gen), torch.randint(10, (n,), generator=gen))]


@pytest.mark.parametrize("name", ["resmlp", "cnn"])
def test_the_layers_that_are_asked_for_are_as_in_a_measurement_of_all(name):
    """The widths of SmallCNN differ: every layer keeps the directions that it has where all are measured."""
    torch.manual_seed(0)
    model, given = (
        (ResMLP(6, 10, width=8, depth=4), batch((6,))) if name == "resmlp" else (SmallCNN(10), batch((3, 32, 32), 2))
    )
    every = diagnose(model, given, credit=BP(), level="full").facts
    some = diagnose(model, given, credit=BP(), level="full", layers=[3, 1]).facts
    for whole, part in ((every.perturbation, some.perturbation), (every.nudging, some.nudging)):
        assert whole is not None
        assert part is not None
        assert whole.layers is None
        assert part.layers == (1, 3)
        for who in ("credit", "reference", "random"):
            ours, theirs = getattr(part, who), getattr(whole, who)
            assert [ours.mean[k] for k in (1, 3)] == [theirs.mean[k] for k in (1, 3)]
            others = [k for k in range(len(ours.mean)) if k not in (1, 3)]
            assert all(ours.mean[k] is None and ours.measurable[k] == 0 for k in others)
    assert some.scale == every.scale
    assert some.reference == every.reference


@pytest.mark.parametrize(
    ("layers", "level", "says"),
    [
        ([9], "full", "layer 9 and the network has layers 0 to 2"),
        ([-1], "full", "0 or more"),
        ([], "full", "0 or more"),
        (3, "full", "0 or more"),
        (["1"], "full", "0 or more"),
        ([True], "full", "0 or more"),
        ([1], "basic", "say level='full'"),
    ],
)
def test_layers_that_are_not_there_are_refused(layers, level, says):
    with pytest.raises(CreditscopeError, match=says):
        diagnose(ResMLP(6, 10, width=8, depth=2), batch((6,)), level=level, layers=layers)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(seconds: float, total: int, out: io.StringIO) -> str:
    """What is said of `total` parts that take so long each."""
    now = [0.0]
    progress = Progress("level full", total, out, lambda: now[0])
    for _ in range(total):
        now[0] += seconds
        progress.step()
    return out.getvalue()


def test_a_long_measurement_says_how_long_and_a_short_one_nothing():
    assert said(0.1, 50, Terminal()) == ""
    assert said(30.0, 40, io.StringIO()) == "creditscope: level full: about 20 min\n"
    shown = said(3.0, 10, Terminal())
    assert shown.startswith("creditscope: level full: about 30 s\n\r[###  ")
    assert shown.endswith("] 10 of 10, 0 s left  \n")
    assert [spoken(s) for s in (4, 100, 9000)] == ["4 s", "2 min", "2.5 h"]
