"""`run_null`: a null per seed by the user's own function, resumed, compared by a paired t."""

import json
import math

import pytest
import torch
from scipy import stats
from tests.refusals import refusal
from tests.trust.oracle import left_as_found
from torch import nn

from creditscope import CreditscopeError, NullRun, frozen_blocks, run_null
from creditscope.measure.depth import more_seeds
from creditscope.models import ResMLP

SEEDS = (3, 5, 8)
NULLS = {3: 0.30, 5: 0.32, 8: 0.31}
TRAINED = (0.35, 0.36, 0.40)


def model() -> ResMLP:
    torch.manual_seed(0)
    return ResMLP(6, 2, 8, 2)


def test_every_seed_gets_its_own_null_and_the_model_is_left_as_found():
    net, seen = model(), {}

    def train_fn(null: nn.Module, seed: int) -> float:
        seen[seed] = {name: p.detach().clone() for name, p in null.named_parameters()}
        assert not any(p.requires_grad for p in null.get_submodule("blocks").parameters())
        with torch.no_grad():
            null.get_parameter("out_head.bias").add_(1)
        return NULLS[seed]

    with left_as_found(net):
        found = run_null(train_fn, net, SEEDS)
    assert found.values == (0.30, 0.32, 0.31)
    for seed in SEEDS:
        wanted = dict(frozen_blocks(net, seed=seed).named_parameters())
        assert all(torch.equal(seen[seed][name], p) for name, p in wanted.items())


def test_the_margin_is_a_paired_t_in_percentage_points():
    found = run_null(lambda _, seed: NULLS[seed], model(), SEEDS, trained=TRAINED)
    wanted = stats.ttest_rel(TRAINED, [0.30, 0.32, 0.31]).confidence_interval(0.95)
    assert found.margin == pytest.approx(6.0)
    assert (found.low, found.high) == pytest.approx((100 * wanted.low, 100 * wanted.high))
    assert found.needed == 2.0
    # spread sqrt(7) pp, distance 4 pp: t(m - 1) · 2.6458 / sqrt(m) is below 4 from m = 5 on (4: 4.21, 5: 3.29)
    assert found.more_seeds == 2
    one = run_null(lambda _, seed: 0.3, model(), [1], trained=[0.5])
    assert (one.margin, one.low, one.more_seeds) == (20.0, None, None)


def test_it_is_told_in_one_line():
    train = lambda _, seed: NULLS[seed]  # noqa: E731
    one, three = (run_null(train, model(), SEEDS[:n], trained=TRAINED[:n]) for n in (1, 3))
    told = [str(one), str(three)]
    assert (
        told[0]
        == "null over 1 seed: accuracy 0.3; trained blocks are better by 5 pp (needed 2; one seed has no interval)"
    )
    assert told[1] == (
        "null over 3 seeds: accuracy 0.31; trained blocks are better by 6 pp [-0.572, 12.6] (needed 2): not decided; 2 more "
        "seeds of this spread would decide, if the trained networks beat chance (diagnose asks that)"
    )  # which is not known here; of another metric nothing is
    assert str(three.model_copy(update={"metric": "loss"})).endswith("2 more seeds of this spread would decide")
    for change, side in ((0.1, "above"), (-0.1, "below")):
        trained = [NULLS[seed] + change for seed in SEEDS]
        line = str(run_null(train, model(), SEEDS, trained=trained))
        assert f"(needed 2): decided, the margin is {side} what is needed, if the trained networks beat chance" in line
    assert str(run_null(train, model(), SEEDS, metric="F1")) == "null over 3 seeds: F1 0.31"


def test_how_many_more_seeds():
    assert more_seeds(4.0, math.sqrt(7), 3) == 2
    assert more_seeds(-4.0, math.sqrt(7), 5) == 0
    assert more_seeds(0.0, 1.0, 3) is None


def test_another_metric_in_its_own_unit():
    losses = {3: 2.5, 5: 2.4}
    found = run_null(
        lambda _, s: losses[s], model(), (3, 5), trained=(2.0, 2.1), metric="loss", needed=0.1, lower_is_better=True
    )
    assert found.margin == pytest.approx(0.4)
    assert found.needed == 0.1


def test_finished_seeds_are_not_trained_again(tmp_path):
    path = tmp_path / "null.json"
    trained: list[int | str] = []

    def train_fn(null: nn.Module, seed: int) -> float:
        if seed == 8 and len(trained) == 2:
            trained.append("stopped")
            raise KeyboardInterrupt
        trained.append(seed)
        return NULLS[seed]

    with pytest.raises(KeyboardInterrupt):
        run_null(train_fn, model(), SEEDS, path=path)
    found = run_null(train_fn, model(), SEEDS, path=path)
    assert trained == [3, 5, "stopped", 8]
    assert found.values == (0.30, 0.32, 0.31)
    assert json.loads(path.read_text())["values"] == {"3": 0.3, "5": 0.32, "8": 0.31}
    for other in ({"model": ResMLP(6, 2, 9, 2)}, {"blocks": ["blocks.0"]}, {"metric": "F1"}):
        with pytest.raises(CreditscopeError, match="nulls of another model, of other blocks or of another metric"):
            run_null(**({"train_fn": train_fn, "model": model(), "seeds": SEEDS, "path": path} | other))
    assert NullRun.model_validate_json(found.model_dump_json()) == found


def moving(null: nn.Module, seed: int) -> float:
    with torch.no_grad():
        null.get_parameter("blocks.0.linear1.weight").add_(1)
    return 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_fn": moving}, "changed 'blocks.0.linear1.weight' of a frozen block"),
        ({"train_fn": lambda *_: 35.0}, r"train_fn must be in \[0, 1\], got 35: is it in percent\? Give 0.35$"),
        ({"train_fn": lambda *_: math.nan, "metric": "loss"}, "train_fn gives nan"),
        ({"train_fn": lambda *_: None, "metric": "loss"}, "train_fn gives None"),
        (
            {"train_fn": lambda *_: None},
            r"train_fn gives None; a number is expected \(accuracy\): return it at the end$",
        ),
        ({"train_fn": lambda *_: (0.4, 0.5)}, r"train_fn gives \(0.4, 0.5\); a number is expected \(accuracy\)$"),
        ({"train_fn": lambda *_: torch.zeros(2)}, r"train_fn gives tensor\(\[0., 0.\]\); a number is expected"),
        ({"train_fn": nn.ReLU(), "model": moving}, r"train_fn is a network \(ReLU\).*the function first$"),
        ({"train_fn": 0.5}, "train_fn is a float; give a function"),
        ({"model": moving}, "model is a function; give a torch.nn.Module"),
        ({"train_fn": lambda net: 0.5}, r"train_fn takes \(net\) and is called as train_fn\(model, seed\): too many"),
        ({"train_fn": lambda net, seed, data: 0.5}, r"takes \(net, seed, data\).*missing a required argument: 'data'"),
        ({"seeds": []}, "give at least one whole number"),
        ({"seeds": [1, 1]}, "each once"),
        ({"trained": [0.5]}, "trained has 1 numbers for 2 seeds"),
        ({"metric": "loss", "trained": [1.0, 2.0]}, "needed is not given"),
        ({"lower_is_better": True}, "lower_is_better is given for accuracy"),
    ],
)
def test_what_makes_no_sense_is_one_line(change, words):
    with pytest.raises(CreditscopeError, match=words):
        run_null(**({"train_fn": lambda *_: 0.5, "model": model(), "seeds": [1, 2]} | change))


def test_what_the_users_own_function_raises_is_theirs():
    def broken(null: nn.Module, seed: int) -> float:
        return float(null.nothing)  # type: ignore[arg-type]

    with pytest.raises(AttributeError, match="nothing"):
        run_null(broken, model(), [1])


def test_what_is_not_known_how_to_initialise_asks_for_build_alone():
    """`rest` is an option of frozen_blocks, which this does not have."""

    class WithToken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.ones(4))
            self.blocks = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.blocks(x + self.token))

    told = refusal(lambda: run_null(lambda *_: 0.5, WithToken(), SEEDS, blocks="blocks.*"))
    assert "pass build=" in told
    assert "rest" not in told


def test_a_margin_is_printed_no_further_than_100_points():
    found = NullRun(metric="accuracy", seeds=(1, 2), values=(0.1, 0.2), needed=2.0, margin=60.0, low=-20.0, high=140.0)
    assert "better by 60 pp [-20, 100], cut at the possible range (needed 2)" in str(found)
    assert "[-20, 140] (needed 2)" in str(found.model_copy(update={"metric": "score"}))


def test_a_constructor_that_sets_the_seed_itself_gives_no_nulls_of_several_seeds():
    def apart() -> ResMLP:
        with torch.random.fork_rng():
            return model()  # which sets the seed

    net = model()
    for build in (model, apart):
        with pytest.raises(CreditscopeError, match=r"build\(\) gives the same random blocks under another seed"):
            run_null(lambda *_: 0.5, net, SEEDS, build=build)
        for seed in (0, 1):
            with pytest.raises(CreditscopeError, match=r"build\(\) gives the same random blocks under another seed"):
                frozen_blocks(net, seed=seed, build=build)
    with pytest.raises(CreditscopeError, match=r"init\(\) gives the same random blocks under another seed"):
        frozen_blocks(net, init=lambda block: block.load_state_dict(net.blocks[0].state_dict()))
    assert run_null(lambda *_: 0.5, net, SEEDS, build=lambda: ResMLP(6, 2, 8, 2)).values == (0.5, 0.5, 0.5)
    with pytest.raises(CreditscopeError, match="seeds is 3; give a list"):
        run_null(lambda *_: 0.5, net, 3)  # type: ignore[arg-type]
