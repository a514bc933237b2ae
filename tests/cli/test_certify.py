"""`creditscope certify` on bundles, and a certificate in the page of a report."""

import json
import re
from pathlib import Path

from creditscope import Certificate, DiagnosticReport, load_bundle
from creditscope.cli import main
from creditscope.data import load_dataset
from creditscope.render.html import Network, html_page
from creditscope.training.certify import certify_bundle

from ..render.pages import unpacked
from .calls import one_line_error, out

SMALL = ["--dataset", "quadratic", "--width", "32", "--depth", "2", "--epochs", "1", "--batch-size", "2000"]


def of_networks(page: str) -> str:
    """The pages of networks that are packed in a page."""
    packs = re.findall(r"<script[^>]*data-networks=[^>]*>(.*?)</script>", page, re.DOTALL)
    return "".join(text for pack in packs for text in unpacked(pack).values())


def test_a_bundle_is_certified_and_its_report_shows_it(tmp_path: Path, capsys):
    run = tmp_path / "dfa"
    assert main(["train", *SMALL, "--method", "dfa", "--credit-norm", "rms", "--out", str(run)]) == 0
    files = {p.name: p.read_bytes() for p in run.iterdir()}
    written, drawn = tmp_path / "c.json", tmp_path / "c.svg"
    text = out(capsys, "certify", run, "--samples", "8", "--json", written, "--figure", drawn)
    content = json.loads(written.read_text())
    assert content["label"] == "no weight transport between blocks, global error"
    first, about, why, *_ = text.splitlines()
    assert first == f"LOCALITY: {content['label']}"
    assert about == "  dfa(rms), 8 samples, float64"
    assert why == f"  why: {content['reason']}"
    assert content["answers"]["readout"]["answer"] == "no"
    assert "update of blocks.1" in drawn.read_text()
    assert {p.name: p.read_bytes() for p in run.iterdir()} == files
    bundle = load_bundle(run)
    found = certify_bundle(bundle, load_dataset("quadratic", None), 8)
    assert isinstance(found, Certificate)
    assert found.label == content["label"]
    report = DiagnosticReport.from_dict(bundle.report)
    pages = [of_networks(html_page([], [Network(r)])) for r in (report, report.with_certificate(found))]
    assert ["Locality of the update" in page for page in pages] == [False, True]
    assert ["LOCALITY: no weight transport" in page for page in pages] == [False, True]
    assert "update of blocks.1" in pages[1]


def test_wrong_flags_are_one_line(tmp_path: Path, capsys):
    run = tmp_path / "bp"
    assert "does not exist" in one_line_error(capsys, "certify", str(run))
    assert "give at least 1" in one_line_error(capsys, "certify", str(run), "--samples", "0")
    assert "no known format" in one_line_error(capsys, "certify", str(run), "--figure", "c.gif")
