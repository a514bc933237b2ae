"""A record is reproduced to the bit by its own code, within the tolerance after rounding, and not if a number is made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.calls import out
from tests.refusals import refusal
from tests.runs.driver import Inline

from creditscope.cli import main
from creditscope.errors import CreditscopeError
from creditscope.runs.archive import Archive, write_archive
from creditscope.runs.execute import run_store
from creditscope.runs.record import Record
from creditscope.runs.store import Store
from creditscope.runs.verify import pick, shortened, verify
from creditscope.training.spec import RunSpec, make_spec


def spec() -> RunSpec:
    return make_spec(
        {"dataset": "quadratic", "method": "dfa", "credit_norm": "rms", "width": 16, "depth": 2, "epochs": 3}
        | {"batch_size": 1000, "checkpoint_epochs": (1, 3)}
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    store = Store(tmp_path_factory.mktemp("verify") / "store", create=True)
    assert run_store([spec()], store, Inline()) == []
    return store


@pytest.fixture
def archive(store, tmp_path) -> Path:
    write_archive(store, [spec().hash], tmp_path / "results")
    return tmp_path / "results"


def recorded(archive: Path) -> Record:
    return pick(Archive(archive), None)


@contextmanager
def altered(archive: Path) -> Iterator[dict[str, Any]]:
    """The file of the run, to be changed."""
    path = archive / "runs" / f"{spec().hash}.json"
    content: dict[str, Any] = json.loads(path.read_text())
    yield content
    path.write_text(json.dumps(content))


def status(archive: Path) -> str:
    return verify(recorded(archive)).status


@pytest.mark.parametrize("epochs", [None, 1, 2])
def test_a_run_of_a_store_and_of_an_archive_is_reproduced_to_the_bit(store, archive, epochs):
    for source in (store, Archive(archive)):
        found = verify(pick(source, None), epochs)
        assert found.status == "exact"
        assert found.epochs == (epochs or 3)


def as_of_schema_1(archive: Path) -> dict[str, Any]:
    """The record as it was written before three-check/1.1: Γ over all layers, no new facts."""
    with altered(archive) as content:
        for line in content["trajectory"]:
            line["gamma"] = line.pop("gamma_all_layers")
        report = content["report"]
        facts = report["facts"]
        facts["aggregate"]["headline"] = facts["aggregate"].pop("gamma_all_layers")
        facts["concentration"]["deep_mean"] = facts["concentration"].pop("deep_mean_all_layers")
        del facts["alignment"]["counting"], facts["alignment"]["counting_note"]
        del facts["evaluation"], facts["claim"], facts["profile"]
        # the verdict was stored then, and is not read
        report |= {"schema_version": 1, "verdict": {"line": "VERDICT: trustworthy (D3 not measured)"}}
    return content


def test_a_record_from_before_the_layers_that_count_is_reproduced_to_the_bit(archive):
    content = as_of_schema_1(archive)
    run = recorded(archive)
    assert verify(run).status == "exact"
    # the old values stay readable, the new ones follow from the means of the layers
    cosines = content["report"]["facts"]["alignment"]["mean"]
    assert run.facts.aggregate is not None
    assert run.facts.aggregate.gamma_all_layers == pytest.approx(sum(cosines) / 3)
    assert run.facts.aggregate.headline == pytest.approx(sum(cosines[:2]) / 2)  # a_2 trains nothing
    assert run.facts.aggregate.concat is None


def test_a_record_from_before_depth_profiles_is_reproduced_to_the_bit(archive):
    """What it does have is still compared."""
    with altered(archive) as content:
        assert content["report"]["facts"].pop("profile")["margin"]
        assert "verdict" not in content["report"]
    assert status(archive) == "exact"
    with altered(archive) as content:
        content["report"]["facts"]["profile"] = None
    assert status(archive) == "exact"
    with altered(archive) as content:
        content["report"]["facts"]["scale"]["growth"] *= 1.01
    assert status(archive) == "not reproduced"


@pytest.mark.parametrize("schema", [1, 2])
def test_what_a_record_is_from_before_is_not_compared(archive, monkeypatch, schema):
    """Here every sample counts as one that float32 rounds away; the record says 0 of them, or nothing."""
    monkeypatch.setattr("creditscope.measure.sweep.SURE", float("inf"))
    if schema == 1:
        as_of_schema_1(archive)
    assert [d.what for d in verify(recorded(archive)).beyond] == ["facts of the report"]
    with altered(archive) as content:
        facts = content["report"]["facts"]
        assert facts["reference"].pop("rounded_samples") == 0
        del facts["scale"]["growth_all_tokens"], facts["proof"]["kinks"]
    assert status(archive) == "exact"
    with altered(archive) as content:
        content["report"]["facts"]["reference"]["per_sample"][0] *= 1.01
    assert status(archive) == "not reproduced"


def test_a_made_up_profile_is_not_reproduced(archive):
    with altered(archive) as content:
        content["report"]["facts"]["profile"]["margin"]["pp"] += 1
    assert status(archive) == "not reproduced"


def test_an_old_record_with_a_made_up_gamma_is_not_reproduced(archive):
    as_of_schema_1(archive)
    with altered(archive) as content:
        content["trajectory"][-1]["gamma"] += 0.3
    assert status(archive) == "not reproduced"


def test_the_first_epochs_follow_the_schedule_of_the_whole(store):
    assert shortened(spec(), 2).schedule_epochs == 3
    assert shortened(spec(), 2).checkpoint_epochs == (1,)
    assert shortened(spec(), 3) == spec()


def test_a_difference_of_rounding_is_told_and_within_the_tolerance(archive):
    with altered(archive) as content:
        content["trajectory"][2]["h"][1] *= 1 + 1e-7
    found = verify(pick(Archive(archive), spec().hash[:8]))
    assert found.status == "within tolerance"
    (difference,) = found.differences
    assert (difference.epoch, difference.what) == (2, "‖h‖ at layer 1")


CLAIMS: dict[str, Callable[[dict[str, Any]], None]] = {
    "accuracy": lambda line: line.update(accuracy=line["accuracy"] + 0.03),
    "cosine at layer 1": lambda line: line["cosine"].__setitem__(1, line["cosine"][1] + 0.2),
    "‖g‖ at layer 0": lambda line: line["g_per_sample"].__setitem__(0, line["g_per_sample"][0] * 2.1),
    "‖h‖ at layer 2": lambda line: line["h"].__setitem__(2, "NaN"),
    "diverged": lambda line: line.update(diverged=True),
    "‖h‖": lambda line: line["h"].pop(),
    "‖g‖": lambda line: line.pop("g_per_sample"),
    "growth": lambda line: line.update(growth=1e9),
    "Γ": lambda line: line.update(gamma=line["gamma"] + 0.2),
    "train loss": lambda line: line.update(train_loss=1e9),
    "checks fired": lambda line: line.update(fired=["D9"]),
}


@pytest.mark.parametrize("what", list(CLAIMS))
def test_a_number_that_was_made_up_is_found(archive, what, capsys):
    with altered(archive) as content:
        CLAIMS[what](content["trajectory"][-1])
    assert main(["runs", "verify", "--store", str(archive)]) == 3
    told = capsys.readouterr().out
    assert f"outside the tolerance at epoch 3: {what}: " in told
    assert "NOT REPRODUCED" in told


@pytest.mark.parametrize("size", [0.3, 0.03, 1e-4])
def test_a_number_made_up_in_the_middle_is_found(archive, size, capsys):
    """A later epoch is equal to the bit: rounding cannot have parted the two before it."""
    with altered(archive) as content:
        content["trajectory"][2]["accuracy"] += size
    assert main(["runs", "verify", "--store", str(archive)]) == 3
    told = capsys.readouterr().out
    assert "outside the tolerance at epoch 2: accuracy: " in told
    assert "NOT REPRODUCED (every epoch is compared" in told


def test_on_another_processor_a_number_made_up_in_the_middle_is_found_by_its_size(archive):
    """Everything after the start differs by rounding, as it does elsewhere."""
    with altered(archive) as content:
        for line in content["trajectory"][1:]:
            line["h"] = [h * (1 + 1e-6) for h in line["h"]]
    assert status(archive) == "within tolerance"
    with altered(archive) as content:
        content["trajectory"][1]["accuracy"] += 0.04
    assert status(archive) == "within tolerance"
    with altered(archive) as content:
        content["trajectory"][1]["accuracy"] += 0.26
    assert [(d.epoch, d.what) for d in verify(recorded(archive)).beyond] == [(1, "accuracy")]


def test_another_network_is_found_before_training_blurs_it(archive):
    with altered(archive) as content:
        content["trajectory"][0]["cosine"][1] += 1e-3
    assert [d.what for d in verify(recorded(archive), 1).beyond] == ["cosine at layer 1"]


def test_a_report_that_was_made_up_is_found(archive):
    with altered(archive) as content:
        content["report"]["headline_acc"][0] += 0.001
    assert verify(recorded(archive), 2).status == "exact"  # a part of the epochs has no report
    assert [d.what for d in verify(recorded(archive)).beyond] == ["headline_acc of the report"]


def test_a_full_disk_is_one_line(archive, monkeypatch):
    def full(prefix: str) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("creditscope.runs.verify.TemporaryDirectory", full)
    with pytest.raises(CreditscopeError, match=r"No space left on device.*TMPDIR"):
        verify(recorded(archive))


def test_the_command_says_what_it_found(archive, capsys):
    told = out(capsys, "runs", "verify", "--store", archive, "--epochs", 1)
    assert "1 of 3 epochs" in told
    assert "REPRODUCED exactly" in told


def test_mistakes_are_one_line(archive):
    with pytest.raises(CreditscopeError, match=r"no run in .* starts with 'zz'"):
        pick(Archive(archive), "zz")
    assert "no run in" in refusal(lambda: pick(Archive(archive), ""))
    assert "--epochs 9: the run has 3 epochs; give 1 to 3" in refusal(lambda: shortened(spec(), 9))
    assert "--epochs 0" in refusal(lambda: shortened(spec(), 0))
