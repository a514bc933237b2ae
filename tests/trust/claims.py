"""Damaged and lying claims: each is refused in one line, or what it says is marked, or it is shown inert; never anything else.

By hand: python tests/trust/claims.py 500 [SEED ...]. Each lie starts from a good entry of board/entries. Half of the liars fit
hash and seal to what they changed, as one would who knows the format.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import html
import json
import random
import re
import shutil
import sys
import tempfile
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.trust.hostile import hostile_bytes, mangled_bytes, mangled_json

from creditscope.board.claim import certificate_hash, seal_of
from creditscope.board.entry import Entry, read_entry
from creditscope.errors import CreditscopeError

ENTRIES = Path(__file__).parents[2] / "board" / "entries"
REFUSED, MARKED, INERT = "refused", "marked", "inert"
SCRIPTS = (
    "<script>window.hit = 1</script>",
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror=window.hit=1>",
    "'\"><svg onload=window.hit=1>",
    "{{ 7 * 7 }}{% raw %}<b onclick=hit()>",
)
RAW = re.compile(r"<script>window|<img src=x|<svg onload|<b onclick", re.IGNORECASE)

Content = dict[str, Any]
Lie = Callable[[Content, Content, random.Random], str | None]
"""Changes the claim or its first report; gives what must come of it (None: it is refused)."""


def fit(claim: Content, report: Content) -> None:
    """Make the hashes of a claim those of its report, and seal it."""
    evidence = claim["evaluations"][0]["reports"][0]
    evidence["sha256"] = hashlib.sha256(dumped(report)).hexdigest()
    found = report.get("certificate")
    evidence["certificate"] = certificate_hash(found) if found else None
    claim["seal"] = seal_of(claim)


def dumped(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where numbers stand."""
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in places(v, (*path, k))]
    if isinstance(value, list):
        return [p for k, v in enumerate(value) for p in places(v, (*path, k))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def change(value: Any, path: tuple[Any, ...], rng: random.Random) -> None:
    """Another number of the same kind, plainly another."""
    parent, old = at(value, path[:-1]), at(value, path)
    if isinstance(old, int):
        parent[path[-1]] = old + rng.choice((-3, 1, 7))
    elif 0 <= old <= 1:
        parent[path[-1]] = old + 0.2 if old < 0.5 else old - 0.2
    else:
        parent[path[-1]] = old * rng.choice((-1.5, 0.4, 3.0)) + 0.1


def number_of_the_claim(claim: Content, report: Content, rng: random.Random) -> None:
    change(claim, rng.choice(places(claim)), rng)


def number_of_the_report(claim: Content, report: Content, rng: random.Random) -> None:
    change(report, rng.choice(places(report)), rng)


BEARING = (
    r"^facts (scale growth|scale total_growth|reference batch_mean_128 \d+|alignment mean \d+|aggregate headline|depth .*_pp|"
    r"depth margins \d+ (null_)?accuracy|evaluation (accuracy|low|high)|claim (accuracy|low|high)|accuracy|profile margin .*pp|"
    r"profile (curve|twin) \d+ (accuracy|low|high)|concentration deep_mean)$|^headline_acc|^n_test$|^network_acc$|"
    r"^verdict checks \d+ (value|threshold|interval \d)$"
)


def fitted_number_of_the_report(claim: Content, report: Content, rng: random.Random) -> None:
    """A number that the verdict or another number rests on; hash and seal are made to fit."""
    found = [p for p in places(report) if re.search(BEARING, " ".join(map(str, p)))]
    change(report, rng.choice(found), rng)


def fitted_number_of_the_claim(claim: Content, report: Content, rng: random.Random) -> None:
    """Another null, another accuracy of backpropagation where it is used: the margin does not follow any more."""
    evaluation = claim["evaluations"][0]
    kind = rng.choice([k for k, v in evaluation["nulls"].items() if v])
    change(evaluation["nulls"][kind], (rng.randrange(len(evaluation["nulls"][kind])),), rng)


def overclaim(claim: Content, report: Content, rng: random.Random) -> str:
    """More than the audited mean, by a point or by as much as there is room for, whatever the interval of the seeds is."""
    mean = sum(report["headline_acc"]) / len(report["headline_acc"])
    higher = [v for v in (0.97, 0.999, 1.0, mean + 0.01, mean + 0.05) if mean + 0.005 < v <= 1]
    claim["claimed"]["accuracy"] = rng.choice(higher) if higher else 1.01
    return MARKED if higher else REFUSED


def overclaimed_gamma(claim: Content, report: Content, rng: random.Random) -> str:
    """A Γ above the audited one, or one where none was audited."""
    total = report["facts"]["aggregate"] or {}
    audited = max((v for k in ("headline", "gamma_all_layers") if (v := total.get(k)) is not None), default=0.0)
    little = audited + 0.01 if len(claim["evaluations"][0]["reports"]) == 1 else 1.0
    claim["claimed"]["gamma"] = rng.choice([v for v in (1.0, 0.9995, little) if audited + 0.001 < v <= 1] or [1.01])
    return MARKED if claim["claimed"]["gamma"] <= 1 else REFUSED


def renamed(claim: Content, report: Content, rng: random.Random) -> str:
    """Another method's name: in the claim it stands beside that of the report; in the report of a run the spec gives it."""
    if claim["evaluations"][0]["spec"] and rng.random() < 0.5:
        report["method_name" if rng.random() < 0.5 else "notes"] = "my new rule"
        return REFUSED
    claim["method"] = "my new rule"
    return MARKED


def impossible(claim: Content, report: Content, rng: random.Random) -> None:
    """A number that nothing gives but that others leave no room for; hash and seal are made to fit."""
    facts = report["facts"]
    choices = ["loss", "median", "zero", "groups"] + (["std"] if facts["alignment"] else [])
    what = rng.choice(choices)
    if what == "loss":
        facts["loss"] = 0.5 * (1 - facts["accuracy"])
    elif what == "median":
        facts["scale"]["median"][0] = 2.5 * facts["scale"]["mean"][0]
    elif what == "zero":
        facts["reference"]["zero_samples"][-1] = facts["convention"]["n_samples"] + 1
    elif what == "groups":
        facts["reference"]["deepest_by_group"] = [2 * v for v in facts["reference"]["deepest_by_group"]]
    else:
        layer = next(k for k, v in enumerate(facts["alignment"]["std"]) if v is not None)
        facts["alignment"]["std"][layer] = 1.2


def not_published(claim: Content, report: Content, rng: random.Random) -> None:
    claim["claimed"] |= {"published": True, "source": ""}
    claim["paper"] = None


def verdict(claim: Content, report: Content, rng: random.Random) -> None:
    status = report["verdict"]["status"]
    report["verdict"]["status"] = "fail" if status == "pass" else "pass"
    if rng.random() < 0.5:
        report["verdict"]["line"] = "VERDICT: trustworthy (praised)"


def changed_hash(claim: Content, report: Content, rng: random.Random) -> None:
    evidence = claim["evaluations"][0]["reports"][0]
    evidence["sha256"] = hashlib.sha256(rng.randbytes(8)).hexdigest()
    claim["seal"] = seal_of(claim)


def changed_seal(claim: Content, report: Content, rng: random.Random) -> None:
    claim["seal"] = hashlib.sha256(rng.randbytes(8)).hexdigest()


def swapped(claim: Content, report: Content, rng: random.Random) -> None:
    """The report of another entry; half of the time with its hash."""
    others = [p for p in sorted(ENTRIES.iterdir()) if p.name != claim["name"]]
    other = json.loads((rng.choice(others) / "report.json").read_bytes())
    if other["facts"]["depth"] == report["facts"]["depth"]:
        other["headline_acc"] = [0.5] * len(other["headline_acc"])
    report.clear()
    report.update(other)
    if rng.random() < 0.5:
        fit(claim, report)


def protocol(claim: Content, report: Content, rng: random.Random) -> None:
    claim["evaluations"][0]["protocol"] = rng.choice(
        ("three-check/1.0", "four-diagnostic/1.0", "three-check/9.9", "three-check")
    )


def newer(claim: Content, report: Content, rng: random.Random) -> None:
    if rng.random() < 0.5:
        claim["schema"] = f"creditscope-claim/{rng.randint(2, 9)}"
    else:
        report["schema_version"] = rng.randint(3, 99)


def date(claim: Content, report: Content, rng: random.Random) -> None:
    claim["evaluations"][0]["date"] = rng.choice(("2999-01-01", "yesterday", "2026-13-01", 20261117.5))


def address(claim: Content, report: Content, rng: random.Random) -> None:
    claim["code"]["url"] = rng.choice(
        ("javascript:alert(1)", 'https://x"onmouseover=alert(1)', "data:text/html,x", "//evil", "x")
    )


def elsewhere(claim: Content, report: Content, rng: random.Random) -> None:
    name = rng.choice(("../report.json", "/etc/passwd", "a/b.json", ".hidden.json", "report.json\n", "REPORT.json", ""))
    claim["evaluations"][0]["reports"][0]["file"] = name
    claim["seal"] = seal_of(claim)


def script_in_the_claim(claim: Content, report: Content, rng: random.Random) -> str:
    script = rng.choice(SCRIPTS)
    fields: tuple[tuple[Any, ...], ...] = (
        ("method",), ("architecture",), ("data",), ("note",), ("code", "name"), ("code", "version"), ("claimed", "source"),
        ("claimed", "convention"), ("evaluations", 0, "by"), ("evaluations", 0, "device"), ("evaluations", 0, "recipe"),
    )  # fmt: skip
    for path in rng.sample(fields, 4):
        at(claim, path[:-1])[path[-1]] = script
    return INERT


def script_in_the_name(claim: Content, report: Content, rng: random.Random) -> None:
    claim["name"] = rng.choice(SCRIPTS)


def script_in_the_report(claim: Content, report: Content, rng: random.Random) -> str:
    claim["evaluations"][0]["spec"] = None  # which would give other names
    report["method_name"], report["notes"] = rng.choice(SCRIPTS), rng.choice(SCRIPTS)
    return INERT


def damaged_claim(claim: Content, report: Content, rng: random.Random) -> None:
    damage(claim, rng)


def damaged_report(claim: Content, report: Content, rng: random.Random) -> None:
    damage(report, rng)


def damage(content: Content, rng: random.Random) -> None:
    changed = mangled_json(content, rng)
    content.clear()
    content.update(changed if isinstance(changed, dict) else {})


LIES: tuple[Lie, ...] = (
    number_of_the_claim, number_of_the_report, fitted_number_of_the_report, fitted_number_of_the_claim, overclaim,
    overclaimed_gamma, renamed, impossible, not_published, verdict, changed_hash, changed_seal, swapped, protocol, newer, date,
    address, elsewhere, script_in_the_claim, script_in_the_name, script_in_the_report, damaged_claim, damaged_report,
)  # fmt: skip
UNFITTED = (
    number_of_the_claim, number_of_the_report, changed_hash, changed_seal, swapped, elsewhere, damaged_claim, damaged_report,
)  # fmt: skip
"""Hash and seal are not made to fit what these have changed, or only by themselves."""


def page_of(entries: list[Entry], refused: list[tuple[str, str]]) -> str:
    """The whole page with everything that is packed in it."""
    from creditscope.render.html.board import board_page

    page = board_page(entries, refused)
    packs = re.findall(r'<script type="application/gzip"[^>]*>([^<]*)</script>', page)
    inside = [json.loads(gzip.decompress(b64decode(pack))) for pack in packs]
    return "\n".join([page, *(text for pages in inside for text in pages.values())])


def bytes_instead(directory: Path, rng: random.Random, canary: Path) -> None:
    """A file of the entry that is no JSON any more."""
    path = directory / rng.choice(("claim.json", "report.json"))
    data = path.read_bytes()
    while (made := rng.choice(hostile_bytes(canary)) if rng.random() < 0.3 else mangled_bytes(data, rng)) == data:
        pass
    path.write_bytes(made)


def lie_once(k: int, good: list[Path], work: Path, rng: random.Random) -> tuple[str, str, str, Entry | None, str]:
    """(kind, wanted, found, entry, message) of the k-th lie."""
    directory = work / f"lie-{k}"
    shutil.copytree(rng.choice(good), directory)
    path = directory / "claim.json"
    claim, report = json.loads(path.read_bytes()), json.loads((directory / "report.json").read_bytes())

    def write() -> None:
        path.write_bytes(dumped(claim))
        (directory / "report.json").write_bytes(dumped(report))

    claim["name"] = directory.name
    fit(claim, report)
    write()
    read_entry(directory)  # as good as it was
    kind, wanted = kind_of(k), REFUSED
    if kind == "bytes_instead":
        bytes_instead(directory, rng, work / "canary")
    else:
        lie = LIES[k % (len(LIES) + 1)]
        before = (copy.deepcopy(claim), copy.deepcopy(report))
        while (claim, report) == before:  # some damage changes nothing
            wanted = lie(claim, report, rng) or REFUSED
        if lie not in UNFITTED:
            fit(claim, report)
        write()
    try:
        entry = read_entry(directory)
    except CreditscopeError as error:
        one_line = "\n" not in str(error)
        return kind, wanted, REFUSED if one_line else "several lines", None, str(error)
    return kind, wanted, MARKED if wanted == MARKED and is_marked(kind, entry) else INERT, entry, ""


def is_marked(kind: str, entry: Entry) -> bool:
    """Whether a reader of `claim check` and of the page is told."""
    from creditscope.render.claims import accuracy_words, gamma_words, marks
    from creditscope.render.claims import renamed as other_name
    from creditscope.render.html.board import board_page, entry_html

    page = html.unescape(board_page([entry]))
    if kind == "renamed":
        return f"{other_name(entry)} in the report" in page
    name, words = ("accuracy", accuracy_words(entry)) if kind == "overclaim" else ("Γ", gamma_words(entry))
    line = next((m for m in marks(entry) if m.startswith(f"claimed {name}")), "")
    told = name == "Γ" or any(f" pp{mark}</i>" in page for mark in (" over", ", undecided"))
    return bool(words) and line.endswith(words) and words in html.unescape(entry_html(entry)) and told


def kind_of(k: int) -> str:
    return [*(lie.__name__ for lie in LIES), "bytes_instead"][k % (len(LIES) + 1)]


def lies(n: int, seed: int, work: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """(how often each kind came to what, what went wrong) of n lies; what holds is rendered together with what is refused."""
    rng = random.Random(seed)
    good = sorted(ENTRIES.iterdir())
    counts: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    held: list[Entry] = []
    refused: list[tuple[str, str]] = []
    for k in range(n):
        try:
            kind, wanted, found, entry, message = lie_once(k, good, work, rng)
        except Exception as error:  # a reader of foreign files raises nothing else
            faults.append(f"lie {k} of {kind_of(k)}: {type(error).__name__}: {error}"[:300])
            continue
        counts[kind, found] += 1
        if found != wanted:
            faults.append(f"lie {k} ({kind}) is {found}, not {wanted}: {message}"[:300])
        if entry is None:
            refused.append((rng.choice(SCRIPTS), message + rng.choice(SCRIPTS)))
        else:
            held.append(entry)
    if held and (raw := RAW.search(page_of(held, refused[:50]))):
        faults.append(f"unescaped on the page: {raw[0]}")
    if (work / "canary").exists():
        faults.append("something in a file was executed")
    return counts, faults


def main(args: list[str]) -> int:
    n, seeds = int(args[0]) if args else 500, [int(a) for a in args[1:]] or [0]
    counts: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="creditscope-claims-") as directory:
            found, wrong = lies(n, seed, Path(directory))
        counts += found
        faults += [f"seed {seed}: {fault}" for fault in wrong]
        print(f"seed {seed}: {sum(found.values())} lies, {len(wrong)} faults", flush=True)
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{kind:<30} {outcome:<10} {count:>5}")
    for fault in faults[:20]:
        print(f"  {fault}")
    print(f"{sum(counts.values())} lies, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
