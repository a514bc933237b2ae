"""Records on disk: the ten lines of the docs, both formats, and damage."""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tests.cli.calls import one_line_error, out
from tests.refusals import refusal
from tests.trust.fuzz import damaged_records

from creditscope import diagnose_arrays
from creditscope.cli import main
from creditscope.record import MAX_BYTES, SCHEMA, Header, npy, read_record

from .resmlp import NumpyResMLP, network, samples, twin_of, weights
from .test_arrays import batches

ROOT = Path(__file__).parents[1]


def header(**entries: Any) -> str:
    return json.dumps({"schema": SCHEMA, "reduction": "mean", "batch_size": 128, "method_name": "DFA", **entries})


def arrays(n: int = 300) -> Any:
    (b,) = batches(torch.float32, (n,))
    named = {f"{k}_{layer}": v for k in "hga" for layer, v in enumerate(b[k])}
    named |= {f"g_{layer}": g / np.float32(128) for layer, g in enumerate(b["g"])}
    return {**named, "logits": b["logits"], "labels": b["labels"]}


def test_the_ten_lines_of_the_docs_write_a_record_that_is_read(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "records.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.S)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line.strip() and not line.startswith(("#", "import"))]) <= 10
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], "records.md", "exec"), {})
    assert "VERDICT" in out(capsys, "diagnose", "record.npz")


@pytest.mark.parametrize("how", ["npz", "compressed", "safetensors", "bytes", "big-endian", "columns"])
def test_every_way_to_write_it_gives_the_same_report(how, tmp_path):
    given = arrays()
    path = tmp_path / ("r.safetensors" if how == "safetensors" else "r.npz")
    text = header(credit_reduction="sum")
    if how == "safetensors":
        save_file(given, path, {"header": text})
    elif how == "compressed":
        np.savez_compressed(path, header=text, **given)
    elif how == "bytes":
        np.savez(path, header=np.frombuffer(text.encode(), np.uint8), **given)
    elif how == "big-endian":
        np.savez(path, header=text, **{k: v.astype(v.dtype.newbyteorder(">")) for k, v in given.items()})
    elif how == "columns":
        columns: Any = {k: np.asfortranarray(v) for k, v in given.items()}
        np.savez(path, header=text, **columns)
    else:
        np.savez(path, header=text, **given)
    layers = {k: [given[f"{k}_{layer}"] for layer in range(4)] for k in "hga"}
    direct = diagnose_arrays(
        {**layers, "logits": given["logits"], "labels": given["labels"]},
        reduction="mean",
        batch_size=128,
        credit_reduction="sum",
        method_name="DFA",
    )
    assert read_record(path).diagnose().to_dict() == direct.to_dict()


def test_a_record_with_data_to_fit_has_a_profile(tmp_path, capsys):
    net, twin = (NumpyResMLP(weights(m)) for m in (network(), twin_of(network())))
    (fit,), (test,) = samples((500,), 7, torch.float64), samples((300,), 1, torch.float64)
    named: dict[str, Any] = {"fit_labels": fit[1].numpy(), "fit_x": fit[0].numpy()}
    b = net.batch(test[0].numpy(), test[1].numpy())
    named |= {"x": b["x"], "labels": b["labels"], "logits": b["logits"]}
    for layer in range(4):
        named |= {f"h_{layer}": b["h"][layer], f"g_{layer}": b["g"][layer], f"twin_{layer}": twin.states(b["x"])[layer]}
        named |= {f"fit_h_{layer}": net.states(fit[0].numpy())[layer]}
        named |= {f"fit_twin_{layer}": twin.states(fit[0].numpy())[layer]}
    np.savez(tmp_path / "r.npz", header=header(reduction="sum", batch_size=None), **named)
    assert main(["diagnose", str(tmp_path / "r.npz"), "--json", str(tmp_path / "r.json")]) == 0
    profile = json.loads((tmp_path / "r.json").read_text())["facts"]["profile"]
    assert profile["n_fit"] == 500
    assert profile["margin"] is not None
    assert "needs loss_from" in out(capsys, "diagnose", tmp_path / "r.npz", "--no-profile", "--full", "--long")
    assert "its header states the null" in one_line_error(capsys, "diagnose", tmp_path / "r.npz", "--null", "x")


def test_the_schema_of_the_header_is_documented():
    written = json.loads((ROOT / "docs" / "record.schema.json").read_text())
    assert written == Header.model_json_schema()


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # two members of one name
        for name, data in members.items():
            archive.writestr(name.rstrip("!"), data)
    return path


def saved(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value, **options)
    return file.getvalue()


def huge(shape: str = "(1099511627776,)", descr: str = "<f8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


GOOD = saved(np.zeros((4, 3)))
TEXT = saved(np.array(header()))


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({}, "no header"),
        ({"h_0.npy": GOOD}, "no header"),
        ({"header.npy": TEXT}, "no entry 'h'"),
        ({"header.npy": saved(np.array("{"))}, "not valid JSON"),
        ({"header.npy": saved(np.array("[" * 100_000))}, "not valid JSON"),
        ({"header.npy": saved(np.array('{"schema": "creditscope-arrays/2"}'))}, "reads 'creditscope-arrays/1'"),
        ({"header.npy": saved(np.array(header(reduction="average")))}, "reduction: must be 'sum' or 'mean'"),
        ({"header.npy": saved(np.array(header(batchsize=3)))}, "batchsize: no such entry; did you mean 'batch_size'?"),
        ({"header.npy": saved(np.array(header(n_test=0)))}, "n_test: must be more than 0"),
        ({"header.npy": saved(np.zeros(3))}, "not text"),
        ({"header.npy": TEXT, "header.npy!": TEXT}, "two arrays 'header'"),
        ({"header.npy": TEXT, "h_0.npy": GOOD, "h_0.npy!": GOOD}, "two arrays 'h_0'"),
        ({"header.npy": TEXT, "h_0.npy": huge()}, "0 bytes of data"),
        ({"header.npy": TEXT, "h_0.npy": huge("(-1,)")}, "shape (-1,)"),
        ({"header.npy": TEXT, "h_0.npy": huge("(" * 300)}, "cannot be read as npz"),
        ({"header.npy": TEXT, "h_0.npy": huge(descr="|O")}, "holds no numbers"),
        ({"header.npy": TEXT, "h_0.npy": huge(descr="<c16")}, "holds no numbers"),
        ({"header.npy": TEXT, "h_0.npy": saved(np.array([{}], dtype=object), allow_pickle=True)}, "holds no numbers"),
        ({"header.npy": TEXT, "h_0.npy": GOOD[:-1]}, "95 bytes of data"),
        ({"header.npy": TEXT, "h_0.npy": b"\x93NUMPY\x09\x00"}, "cannot be read"),
        ({"header.npy": TEXT, "h_00.npy": GOOD}, "an array 'h_00'"),
        ({"header.npy": TEXT, "fit_g_0.npy": GOOD}, "an array 'fit_g_0'"),
        ({"header.npy": TEXT, "../h_0.npy": GOOD}, "an array '../h_0'"),
        ({"header.npy": TEXT, "h_0.npy": GOOD, "h_2.npy": GOOD}, "no h_1"),
        ({"header.npy": TEXT, "h_0.npy": GOOD, "h_1.npy": GOOD, "g_0.npy": GOOD}, "no g_1"),
        ({"header.npy": TEXT, "h_0.npy": GOOD, "h_1.npy": GOOD, "a_2.npy": GOOD}, "and a_2"),
    ],
)
def test_what_does_not_fit_is_one_line(members, said, tmp_path):
    path = zipped(tmp_path / "r.npz", members)
    assert said in refusal(lambda: read_record(path).diagnose())


def test_a_file_that_unpacks_to_more_than_a_record_is_refused_before_it_is_read(tmp_path):
    path = zipped(tmp_path / "r.npz", {"h_0.npy": GOOD})
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 24  # the size when unpacked, in the central directory
    data[at : at + 4] = (0xFFFFFFFE).to_bytes(4, "little")
    path.write_bytes(data)
    assert f"at most 10,000 of {MAX_BYTES:,}" in refusal(read_record, path)


@pytest.mark.parametrize("name", ["missing.npz", "r.npy", "folder.npz"])
def test_what_is_no_file_is_one_line(name, tmp_path):
    (tmp_path / "folder.npz").mkdir()
    refusal(lambda: read_record(tmp_path / name))


def test_numpy_reads_the_same_arrays():
    rng = np.random.default_rng(0)
    for shape in ((), (0,), (3,), (2, 0, 3), (4, 5, 6)):
        for dtype in ("f2", "f4", ">f8", "i8", "u1", "<U7"):
            value = (100 * rng.standard_normal(shape)).astype(dtype)
            got = npy(saved(value))
            assert got.dtype == value.dtype.newbyteorder("=")
            np.testing.assert_array_equal(got, value)


def test_damaged_records_are_refused_with_one_line_each(tmp_path):
    """By hand: python tests/trust/fuzz.py 2000 900 record."""
    refused, same = damaged_records(150, tmp_path, seed=1)
    assert refused + same == 150
    assert refused > 130
