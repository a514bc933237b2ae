"""The audit of one paper: its data are whole, and its pages hold the numbers of the files in results/."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from creditscope.runs.archive import Archive
from creditscope.runs.groups import audit
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.compare import about, read_audit
from creditscope.studies.published import Decision, Number

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
FOLDER = ROOT / "audits" / "arxiv-2606.21126"
PAGE = (ROOT / "docs" / "audit.md").read_text()
LIMIT = 20 * 2**20


@pytest.fixture(scope="module")
def raw() -> list[dict[str, Any]]:
    """The files as they are, without any of our readers."""
    return [json.loads(p.read_text()) for p in sorted((RESULTS / "runs").glob("*.json"))]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


LINES = table(ROOT / "docs" / "audit.csv")
SECONDS: dict[tuple[Any, ...], float] = {
    tuple(row.values())[:-1]: float(row["seconds"]) for row in table(FOLDER / "cost.csv")
}
"""Of an epoch, by dataset, arch, width, depth, method, frozen and options."""
HERE = {p.stem for p in (RESULTS / "runs").glob("*.json")}


def test_every_file_is_indexed_and_all_are_small(raw):
    index = json.loads((RESULTS / "index.json").read_text())["runs"]
    assert set(index) == HERE
    assert all(entry["command"].startswith("creditscope train --dataset ") for entry in index.values())
    assert sum(p.stat().st_size for p in RESULTS.rglob("*") if p.is_file()) < LIMIT
    assert not list(RESULTS.rglob("*.safetensors"))
    for run in raw:
        assert run["files"].keys() >= {"model.safetensors", "credit.safetensors"}  # checksums of what is not here


def test_the_published_values_are_whole():
    """197 numbers and 90 decisions before the corrections; what was added or corrected says so."""
    claims = read_audit(FOLDER).claims
    numbers = [c for c in claims if isinstance(c, Number)]
    assert len([c for c in numbers if "added" not in c.note]) == 197
    assert len([c for c in claims if isinstance(c, Decision)]) == 90
    assert all(c.source for c in claims)
    for c in numbers:
        assert re.match(r"(v1|v2|outline|code README|final|public history)", c.source), c
    assert sum("corrected" in c.note for c in numbers) >= 10


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ({"method": "dfa", "setting": "", "quantity": "deep_cosine_all_layers", "table": "Penalty"}, "-0.022"),
        ({"method": "ep", "quantity": "growth", "table": "Primary audit"}, "11.6"),
        ({"method": "dfa", "quantity": "reference_norm_128[2]", "epoch": 1}, "6.7e-07; 6.5e-07; 3.9e-07"),
        ({"method": "fa", "quantity": "accuracy", "table": "d = 512, L = 2", "minus": ""}, "0.345"),
    ],
)
def test_corrections(wanted, value):
    (found,) = (c for c in read_audit(FOLDER).claims if all(getattr(c, k, None) == v for k, v in wanted.items()))
    assert isinstance(found, Number)
    assert (found.value, found.kind, found.std) == (value, "value", None)


def test_the_named_claims_of_text_and_appendices_are_there():
    """Validations, pitfalls 4 and 5, ‖g_l‖ of every layer, threshold separation, saved epochs."""
    numbers = [c for c in read_audit(FOLDER).claims if isinstance(c, Number)]
    values = {(c.table, c.method, c.quantity, c.minus): c.value for c in numbers}
    assert values["Validations", "bp", "accuracy", "BP without penalty"] == "-5.3"
    assert values["Validations", "bp", "accuracy", "DFA (rms) with penalty"] == "17"
    pitfalls = {"gamma_all_layers": "0.106", "fresh_b_mean": "0", "gamma_lowest": "-0.028", "gamma_highest": "0.074"}
    assert {k: values["Pitfalls", "dfa", k, ""] for k in pitfalls} == pitfalls
    assert values["Course of DFA", "dfa", "saved[1024]", ""] == "0.96"
    for method in ("bp", "fa", "dfa"):
        assert {f"reference_norm_128[{k}]" for k in range(5)} <= {c.quantity for c in numbers if c.method == method}
    ends = {(c.quantity, c.kind, c.value) for c in numbers if c.table == "Threshold separation"}
    growth = {("growth", "at most", "11"), ("growth", "at least", "694")}
    assert ends == growth | {("reference_norm_128", "at least", "1e-04"), ("reference_norm_128", "at most", "4.2e-09")}


def test_every_table_and_figure_of_the_drafts_has_its_place():
    tables = {row["table"]: row for row in table(FOLDER / "tables.csv")}
    claims = read_audit(FOLDER).claims
    assert set(tables) == {c.table for c in claims} | {"no result"}
    every = {place for row in tables.values() for place in row["places"].split(", ")}
    counts = {"v1 Table": 5, "v2 Table": 4, "v2 Fig.": 5, "final Table": 6, "final Fig.": 6}
    assert {f"{kind} {k}" for kind, count in counts.items() for k in range(1, count + 1)} <= every
    for c in claims:
        named = {" ".join(m) for m in re.findall(r"(v1|v2|final) (Table|Fig\.) (\d)", c.source)}
        assert named <= set(tables[c.table]["places"].split(", ")), c
    for name, row in tables.items():
        assert name == "no result" or f"| [{name}](studies/{row['study']}.md) | " in PAGE
        assert name == "no result" or (ROOT / "docs" / "studies" / f"{row['study']}.md").exists()


def test_what_was_not_run_has_its_reason_and_its_cost():
    """CIFAR-100 by hand; every value that our runs leave open is in the list, and every planned row has a cost."""
    text = (ROOT / "docs" / "planned.md").read_text().partition("## By published table")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ][1:]
    counted = Counter({name: 0 for name, *_ in rows})
    for name, _, methods, reason, runs, hours in rows:
        counted[name] += sum(map(int, re.findall(r"\((\d+)\)", methods)))
        assert reason
        assert int(runs) or hours == "–"
    by: dict[tuple[str, ...], set[str]] = defaultdict(set)
    named = ("table", "method", "setting", "quantity", "epoch", "minus", "published", "note")
    for line in LINES:
        other = line["reason"] == "the published value is of another kind"
        by[tuple(line[k] for k in named)].add("another kind" if other else line["outcome"])
    open_ = Counter(key[0] for key, found in by.items() if found <= {"not run", "not comparable"})
    assert counted == open_
    wanted = [s for s in get_study("cifar100").specs("paper") if s.hash not in HERE]
    wanted = [s for s in wanted if (s.method == "bp" or s.train_last is None) and s.credit_norm in (None, "none")]
    cost = sum(
        100 * SECONDS["cifar100", "resmlp", "256", "4", s.method, "yes" if s.frozen else "no", "{}"] for s in wanted
    )
    for row in (row for row in rows if row[0] == "CIFAR-100"):  # none, once a seed of each is run
        assert int(row[4]) == len(wanted)
        assert float(row[5]) == pytest.approx(cost / 3600, abs=0.051)


def test_every_claim_is_about_some_run_of_the_plan():
    """Otherwise it would say "not run" for ever; of what no study plans, the page says so by that."""
    audit = read_audit(FOLDER)
    planned = {spec.hash: spec for name in NAMES for spec in get_study(name).specs("paper")}
    outside = set()
    for claim in audit.claims:
        wanted = [audit.wanted(claim, r) for name, r in audit.paper.readings.items() if name in ("as written", "rms")]
        for fields in wanted:
            fields.pop("epochs")
        if not any(about(spec, fields) for spec in planned.values() for fields in wanted):
            outside.add((claim.method, claim.setting))
    assert outside == {(m, "SmallCNN") for m in ("sb", "ep", "cb")}


def test_the_page_is_short_and_what_git_holds_is_small():
    assert len(PAGE.splitlines()) <= 120
    assert (ROOT / "docs" / "audit.csv").stat().st_size < 300_000
    assert (ROOT / "docs" / "images" / "audit.svg").stat().st_size < 60_000
    assert not (ROOT / "docs" / "audit.html").exists()


@pytest.mark.parametrize("name", ["cifar100", "penalty", "ladder"])
def test_the_page_of_planned_runs_counts_the_files_and_knows_every_cost(name):
    """Of studies of which no run, most runs and no run are there; penalty shares three runs with triangulation."""
    others = {
        s.hash for other in itertools.takewhile(lambda n: n != name, NAMES) for s in get_study(other).specs("paper")
    }
    grid = {s.hash: s for s in get_study(name).specs("paper")}
    specs = {key: s for key, s in grid.items() if key not in others}
    hours = 0.0
    for key in specs.keys() - HERE:
        s = specs[key]
        frozen, options = "yes" if s.train_last == 0 else "no", json.dumps(s.options, sort_keys=True)
        kind = (s.dataset, s.arch, f"{s.width}", f"{s.depth}", s.method, frozen, options)
        hours += SECONDS[kind] * (s.epochs or 0) / 3600
    row = rf"\| {name} \| {len(grid)} \| {len(specs)} \| {len(specs.keys() & HERE)} \| ([\d.]+) \|"
    found = re.search(row, (ROOT / "docs" / "planned.md").read_text())
    assert found is not None
    assert float(found[1]) == pytest.approx(hours, abs=0.051)
    if name == "penalty":
        assert (
            len(grid.keys() & {s.hash for s in get_study("triangulation").specs("paper")})
            == 3
            == len(grid) - len(specs)
        )


# ---- a second computation of what the pages say ------------------------------------------------------------------------


def primary(
    raw: list[dict[str, Any]], method: str, last: int | None = None, **change: Any
) -> dict[str, dict[int, Any]]:
    """Files of the primary audit by credit norm and seed, chosen by hand-written conditions."""
    chosen: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for run in raw:
        s = {"grad_clip": None, "head_lr": None, **run["spec"]}
        shape = {"dataset": "cifar10", "arch": "resmlp", "width": 256, "depth": 4, "epochs": 100, "terminal_norm": True}
        rest = {
            "penalty": 0,
            "train_last": last,
            "targets": "labels",
            "method": method,
            "grad_clip": None,
            "head_lr": None,
        }
        same = all(s[k] == v for k, v in {**shape, **rest, **change}.items())
        if same and s["credit_site"] in (None, "input") and s["precision"] == "fp32":
            chosen[s["credit_norm"] or ""][s["seed"]] = run
    return chosen


READ = {
    "accuracy": lambda line: line["accuracy"],
    "last_h": lambda line: line["h"][-1],
    "reference_norm_128": lambda line: line["g_per_sample"][-1] / 128,
    "growth": lambda line: max(np.divide(line["h"][1:], line["h"][:-1])),
}


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
def test_lines_equal_the_files(raw, method):
    """numpy over the last lines of the trajectories."""
    compared = 0
    for norm, by_seed in primary(raw, method).items():
        last = [by_seed[seed]["trajectory"][-1] for seed in sorted(by_seed)]
        reading = "rms" if norm == "rms" else "as written"
        for quantity, read in READ.items():
            wanted = {
                "table": "Primary audit",
                "method": method,
                "setting": "",
                "quantity": quantity,
                "reading": reading,
            }
            for row in (x for x in LINES if all(x[k] == v for k, v in wanted.items()) and x["note"].find("1024") < 0):
                values = [read(line) for line in last]
                mean = np.mean(values) if quantity == "accuracy" else np.exp(np.mean(np.log(values)))
                assert float(row["ours"]) == pytest.approx(mean, rel=1e-4)
                assert int(row["ours.n"]) == len(values)
                compared += 1
    assert compared >= 4


@pytest.mark.parametrize(
    ("label", "method", "norm"), [("bp", "bp", ""), ("fa(rms)", "fa", "rms"), ("dfa(none)", "dfa", "none")]
)
@pytest.mark.parametrize("page", ["README.md", "docs/audit.md"])
def test_margins_equal_those_of_the_files(raw, label, method, norm, page):
    """Paired t over seeds, by scipy's test of one sample, from the accuracies in the files."""
    accuracy = [
        {seed: r["trajectory"][-1]["accuracy"] for seed, r in primary(raw, method, last)[norm].items()}
        for last in (None, 0)
    ]
    margins = [100 * (accuracy[0][seed] - accuracy[1][seed]) for seed in accuracy[0]]
    interval = stats.ttest_1samp(margins, 0).confidence_interval(0.95)
    margin = f"{np.mean(margins):+.1f} [{interval.low:+.1f}, {interval.high:+.1f}]"
    text = (
        (ROOT / page)
        .read_text()
        .partition("primary audit, from results/" if page == "README.md" else "## The audit table")[2]
    )
    row = next(x for x in text.splitlines() if x.startswith(f"| {label} |"))
    assert margin in row.replace("\\", "")


def found(pattern: str) -> list[float]:
    match = re.search(pattern, " ".join(PAGE.split()))
    assert match is not None, pattern
    return [float(x) for x in match.groups()]


def test_findings_one_to_four_equal_the_files(raw):
    def last(runs: dict[int, Any]) -> dict[int, float]:
        return {seed: run["trajectory"][-1]["accuracy"] for seed, run in sorted(runs.items())}

    bp: list[tuple[dict[str, Any], float]] = [
        ({}, 0.615),
        ({"epochs": 30}, 0.585),
        ({"epochs": 30, "penalty": 0.01}, 0.532),
    ]
    off = [abs(np.mean(list(last(primary(raw, "bp", **change)[""]).values())) - p) for change, p in bp]
    frozen = {
        (method, norm): last(runs) for method in ("bp", "fa", "dfa") for norm, runs in primary(raw, method, 0).items()
    }
    off.append(abs(np.mean(list(frozen["dfa", "rms"].values())) - 0.349))
    assert found(r"agree with ours to ([\d.]+)") == [pytest.approx(max(off), abs=6e-4)]
    course = {1: 1.4e-6, 2: 3.1e-7, 3: 1.3e-7}
    recipes: list[tuple[dict[str, Any], str]] = [
        ({}, r"off by a factor of ([\d.]+)\."),
        ({"grad_clip": 1.0}, r"it is off by ([\d.]+),"),
    ]
    for change, words in recipes:
        runs = primary(raw, "dfa", **change)["rms" if change else "none"].values()
        ratios = [
            np.mean([np.log10(r["trajectory"][e]["g_per_sample"][-1] / 1024 / p) for r in runs])
            for e, p in course.items()
        ]
        assert found(words) == [pytest.approx(10 ** np.sqrt(np.mean(np.square(ratios))), rel=0.06)]
    alone: list[tuple[dict[str, Any], str]] = [
        ({}, r"seed 42 alone is off by (\d+) as written"),
        ({"grad_clip": 1.0}, r"and by ([\d.]+) with both"),
    ]
    for change, words in alone:
        run = primary(raw, "dfa", **change)["rms" if change else "none"][42]["trajectory"]
        ratios = [np.log10(run[e]["g_per_sample"][-1] / 1024 / p) for e, p in course.items()]
        assert found(words) == [pytest.approx(10 ** np.sqrt(np.mean(np.square(ratios))), rel=0.06)]
    start = primary(raw, "dfa")["none"][42]["trajectory"][0]["g_per_sample"][-1]
    assert found(r"ours ([\d.e-]+) at 1024 and ([\d.e-]+) at 128") == pytest.approx(
        [start / 1024, start / 128], rel=0.06
    )
    for norm in ("none", "rms"):
        fa, dfa = (last(primary(raw, m)[norm]) for m in ("fa", "dfa"))
        gaps = found(rf"([\d.]+) pp (?:remain )?\({norm};")
        assert gaps == [pytest.approx(100 * np.mean([fa[s] - dfa[s] for s in fa]), abs=0.06)]
    means = [np.mean(list(by_seed.values())) for by_seed in frozen.values()]
    assert found(r"differ by ([\d.]+) pp") == [pytest.approx(100 * (max(means) - min(means)), abs=0.06)]


def test_the_pairing_that_the_published_cosines_fit_is_computed_from_them():
    row = {2: 0.96, 4: 0.29, 6: 0.16, 8: 0.11, 12: 0.09}
    (said,) = re.findall(r"times L - 1 is ([^a-z]+) at L = ([\d, ]+) and (\d+)", " ".join(PAGE.split()))
    assert [float(v) for v in said[0].split(", ")] == pytest.approx([(k - 1) * v for k, v in row.items()], abs=0.006)
    assert [*map(int, said[1].split(", ")), int(said[2])] == list(row)


def test_the_choices_of_seeds_equal_the_files(raw):
    """Every three of ten seeds, by hand: the mean margin of FA under 2 pp."""
    accuracy: dict[int | None, dict[int, float]] = {None: {}, 0: {}}
    for run in raw:
        s = run["spec"]
        wide = (s["width"], s["depth"], s["epochs"], s["dataset"], s["method"]) == (512, 2, 30, "cifar10", "fa")
        if wide and s["seed"] <= 10 and s["credit_norm"] == "none" and s["credit_site"] == "input":
            accuracy[s["train_last"]][s["seed"]] = run["trajectory"][-1]["accuracy"]
    margins = {seed: 100 * (acc - accuracy[0][seed]) for seed, acc in accuracy[None].items()}
    choices = list(itertools.combinations(sorted(margins), 3))

    def is_below(three: tuple[int, ...]) -> bool:
        """The upper end of the paired t interval; both accuracies are known to 1e-4, which is a variance of its own."""
        gaps = [margins[s] for s in three]
        variance = np.var(gaps, ddof=1) + 2 * 0.01**2 / 12
        return bool(np.mean(gaps) + 4.302653 * np.sqrt(variance / 3) < 2)

    below = sum(np.mean([margins[s] for s in three]) < 2 for three in choices)
    assert found(r"in (\d+) of them the whole 95 % interval") == [sum(is_below(three) for three in choices)]
    assert found(r"Of the (\d+) choices of three, (\d+) put") == [len(choices), below]


def test_the_page_of_the_protocol_says_which_archived_verdicts_changed():
    page = (ROOT / "docs" / "protocol.md").read_text().partition("## From 1.0 to 1.1")[2].partition("\n## ")[0]
    runs = Archive(RESULTS).runs()
    old, new = ([r for g in audit(runs, protocol=f"three-check/{v}") for r in g.reports] for v in ("1.0", "1.1"))
    assert [r.run for r in old] == [r.run for r in new]
    for before, now in zip(old, new, strict=True):
        answers = [{check.id: check.answer for check in report.verdict.checks} for report in (before, now)]
        assert answers[0] == answers[1]
    said = [
        tuple(
            re.split(r"; estimate| \(no failure| \(warning", r.verdict.line.removeprefix("VERDICT: "))[0] for r in pair
        )
        for pair in zip(old, new, strict=True)
    ]
    changed = Counter(pair for pair in said if pair[0] != pair[1])
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    assert {(row[0], row[1]): int(row[2]) for row in rows if row[0].startswith("trustworthy")} == changed
    assert f"The {len(new)} archived networks" in page
    assert f"{changed.total()} verdicts change" in page
    missing = {row[0]: int(row[1]) for row in rows if row[0].startswith(("share", "Γ"))}
    facts = [r.facts for r in new]
    assert list(missing.values()) == [
        sum(f.evaluation is not None and f.evaluation.largest_class is None for f in facts),
        sum(f.aggregate is not None and f.aggregate.concat is None for f in facts),
    ]
