"""The spec of a run: what it resolves to, what its hash depends on, what it refuses."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from tests.refusals import refusal

from creditscope import RunSpec
from creditscope.training.spec import make_spec, recorded_spec

DFA = {"method": "dfa", "credit_norm": "rms"}


def test_recipe_of_the_embedded_task_is_the_one_of_the_issue():
    s = make_spec({})
    assert (s.arch, s.width, s.depth, s.batch_size) == ("resmlp", 128, 4, 128)
    assert (s.lr, s.epochs, s.augment, s.weight_decay, s.schedule_epochs, s.seed) == (2e-3, 25, False, 0.01, 25, 42)


def test_shared_recipe_of_the_primary_audit():
    s = make_spec({"dataset": "cifar10"})
    assert (s.arch, s.width, s.depth, s.ratio, s.terminal_norm) == ("resmlp", 256, 4, 1, True)
    assert (s.batch_size, s.lr, s.weight_decay, s.epochs, s.augment) == (128, 1e-3, 0.01, 100, True)


def test_a_default_means_the_same_whether_or_not_it_is_typed():
    typed = {"dataset": "quadratic", "arch": "resmlp", "width": 128, "epochs": 25, "schedule_epochs": 25, "lr": 2e-3}
    assert make_spec({**DFA, **typed}).hash == make_spec(DFA).hash
    assert make_spec({**DFA, "credit_site": "input"}).hash == make_spec(DFA).hash
    assert make_spec({**DFA, "head_lr": 2e-3}).hash == make_spec(DFA).hash  # that of the rest
    assert make_spec({**DFA, "train_last": 4}).hash == make_spec(DFA).hash  # all four blocks


def test_everything_that_changes_the_result_changes_the_hash():
    variants: list[dict[str, Any]] = [
        {},
        {"credit_norm": "none"},
        {"credit_site": "output"},
        {"grad_clip": 1.0},
        {"grad_clip": 2.0},
        {"grad_clip": 1.0, "clip_over": "global"},
        {"penalty": 1e-4},
        {"train_last": 0},
        {"train_last": 1},
        {"targets": "random"},
        {"epochs": 24},
        {"schedule_epochs": 26},
        {"batch_size": 64},
        {"lr": 1e-3},
        {"head_lr": 1e-3},
        {"weight_decay": 0.0},
        {"seed": 43},
        {"width": 64},
        {"depth": 3},
        {"ratio": 2},
        {"terminal_norm": False},
        {"method": "fa"},
    ]
    hashes = {make_spec({**DFA, **change}).hash for change in variants}
    slugs = {make_spec({**DFA, **change}).slug for change in variants}
    assert len(hashes) == len(slugs) == len(variants)


def test_spec_survives_its_own_json():
    s = make_spec({**DFA, "penalty": 0.1})
    again = RunSpec.model_validate_json(s.model_dump_json())
    assert again == s
    assert again.hash == s.hash


def test_clipping_is_named_in_the_label_and_an_unclipped_run_keeps_its_name():
    """The hash of a run of the archive, computed from its fields as they were before there was clipping."""
    fields = {"schema_version": 1, "arch": "resmlp", "augment": False, "credit_norm": "rms", "credit_site": "input"}
    fields |= {"depth": 4, "epochs": 25, "lr": 2e-3, "method": "dfa", "ratio": 1, "schedule_epochs": 25}
    fields |= {"terminal_norm": True, "width": 128}
    text = json.dumps(fields, sort_keys=True).encode()
    assert make_spec(DFA).hash == hashlib.sha256(text).hexdigest()
    assert make_spec({**DFA, "grad_clip": 1}) == make_spec({**DFA, "grad_clip": 1.0, "clip_over": "module"})
    assert make_spec({**DFA, "grad_clip": 1}).label == "dfa(rms, clip 1 per module)"
    assert make_spec({"grad_clip": 0.5, "clip_over": "global"}).label == "bp(clip 0.5 global)"
    assert make_spec(DFA).label == "dfa(rms)"


def test_the_matched_null_is_clipped_as_the_run_is_and_the_strong_null_is_not():
    s = make_spec({**DFA, "grad_clip": 1})
    assert (s.null("matched").grad_clip, s.null("matched").clip_over) == (1.0, "module")
    assert s.null("bp") == make_spec(DFA).null("bp")


def test_matched_null_keeps_rule_norm_and_site_and_the_strong_null_is_bp():
    s = make_spec({**DFA, "credit_site": "output", "penalty": 0.1, "seed": 5})
    matched, strong = s.null("matched"), s.null("bp")
    assert (matched.method, matched.credit_norm, matched.credit_site, matched.train_last) == ("dfa", "rms", "output", 0)
    assert (strong.method, strong.credit_norm, strong.credit_site, strong.train_last) == ("bp", None, None, 0)
    assert matched.frozen
    assert strong.frozen
    assert matched.seed == strong.seed == 5
    assert make_spec({"seed": 5}).null("matched") == strong  # BP's matched null is the strong null


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"method": "dfa"}, "needs credit_norm"),
        ({"method": "bp", "credit_norm": "rms"}, "do not apply"),
        ({"arch": "resnet"}, "arch"),
        ({"arch": "vit-mini"}, "needs images"),
        ({"augment": True}, "needs images"),
        ({"dataset": "cifar10", "arch": "vit-mini", "width": 30}, "multiple of 4"),
        ({"dataset": "cifar10", "arch": "small-cnn", "depth": 4}, "fixed shape"),
        ({"dataset": "cifar10", "arch": "small-cnn", **DFA, "credit_site": "input"}, "plain stream"),
        ({"train_last": 5}, "more than the 4 blocks"),
        ({"epochs": 5, "schedule_epochs": 4}, "shorter than epochs"),
        ({"epochs": 0}, "epochs"),
        ({"lr": float("nan")}, "lr"),
        ({"penalty": float("inf")}, "penalty"),
        ({"seed": -1}, "seed"),
        ({"penalty": -1}, "penalty"),
        ({"grad_clip": 0}, "grad_clip"),
        ({"grad_clip": float("nan")}, "grad_clip"),
        ({"clip_over": "global"}, "grad_clip (the norm) is not given"),
    ],
)
def test_a_spec_that_cannot_be_run_is_one_line(data, says):
    assert says in refusal(lambda: make_spec(data))


def test_options_of_a_rule_are_part_of_the_name():
    names = {make_spec({"method": "ep", "options": options}).hash for options in ({}, {"steps": 5}, {"beta": 0.25})}
    assert len(names) == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"widht": 3}, "widht: unknown field; did you mean 'width'? known: dataset, arch"),
        ({"method": "dfaa"}, "method 'dfaa' is unknown; did you mean 'dfa'? choose one of"),
        (
            {"dataset": "cifar"},
            "dataset: must be 'quadratic', 'cifar10', 'cifar100' or 'student' (got 'cifar'); did you mean",
        ),
        ({"depth": 0}, "depth: must be 1 or more (got 0)"),
        ({"depth": 2000}, "depth: must be 1024 or less (got 2000)"),
        ({"depth": "deep"}, "depth: must be a whole number (got 'deep')"),
        ({"depth": 1.5}, "depth: must be a whole number (got 1.5)"),
        ({"lr": "fast"}, "lr: must be a number (got 'fast')"),
        ({"lr": 0}, "lr: must be more than 0 (got 0)"),
        ({"seed": 2**31}, "seed: must be less than 2147483648 (got 2147483648)"),
        ({"terminal_norm": "maybe"}, "terminal_norm: must be true or false (got 'maybe')"),
        ({"options": 3}, "options: must be a mapping of names to values (got 3)"),
        (
            {"method": "ep", "options": {"stepps": 3}},
            "option 'stepps' of method ep: no such option; did you mean 'steps'?",
        ),
    ],
)
def test_a_mistake_in_python_is_one_line_in_plain_words(settings, says):
    message = refusal(lambda: RunSpec(**settings))
    assert message.startswith(says)
    assert "pydantic" not in message
    assert "Input should" not in message


def test_a_recorded_run_of_an_unknown_rule_can_be_read_and_keeps_its_hash():
    known = make_spec({"method": "dfa", "credit_norm": "rms"})
    record = {**known.model_dump(), "method": "somebodys-rule"}
    spec = recorded_spec(record)
    assert spec.hash == recorded_spec(spec.model_dump()).hash != known.hash
    assert spec.null("matched").method == "somebodys-rule"
    assert spec.null("bp") == known.null("bp")
    assert "'somebodys-rule' is unknown" in refusal(lambda: make_spec(record))
    assert "is unknown" in refusal(lambda: recorded_spec({**record, "method": "../up"}))
