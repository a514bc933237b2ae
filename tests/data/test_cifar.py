"""CIFAR files in both official layouts, written here record by record; and everything that must be refused."""

import hashlib
import io
import os
import pickle
import re
import tarfile
import urllib.error
from dataclasses import replace
from email.message import Message

import numpy as np
import pytest
from tests.refusals import refusal

from creditscope.data import cifar, cifar_archive, load_dataset
from creditscope.data.cifar import CIFAR10, CIFAR100, data_root, load_from

N = 6  # records per file in these tests


def small(spec, n=N):
    return replace(spec, **{f: tuple((name, n) for name, _ in getattr(spec, f)) for f in ("train", "test")})


SMALL = small(CIFAR10)
SPECS = [pytest.param(SMALL, id="cifar10"), pytest.param(small(CIFAR100), id="cifar100")]


def samples(spec, part):
    """Pixels [n, 3072] and labels [n] of one file; every file has its own."""
    rng = np.random.default_rng(part)
    return rng.integers(0, 256, (N, 3072), dtype=np.uint8), rng.integers(0, spec.n_classes, N).tolist()


def write_binary(spec, root):
    directory = root / spec.binary_dir
    directory.mkdir(parents=True)
    for part, (name, _) in enumerate(spec.train + spec.test):
        pixels, labels = samples(spec, part)
        with (directory / f"{name}.bin").open("wb") as file:
            for image, label in zip(pixels, labels, strict=True):
                coarse = [19] if spec.n_classes == 100 else []
                file.write(bytes([*coarse, label]) + image.tobytes())
    return directory


def write_python(spec, root, protocol=2, key=str.encode):
    directory = root / spec.python_dir
    directory.mkdir(parents=True)
    for part, (name, _) in enumerate(spec.train + spec.test):
        pixels, labels = samples(spec, part)
        content = {key("data"): pixels, key(spec.label_key): labels, key("filenames"): [b"a.png"] * N}
        (directory / name).write_bytes(pickle.dumps(content, protocol=protocol))
    return directory


def pack(directory, archive):
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(directory, arcname=directory.name)


def assert_is_written(ds, spec):
    files = [samples(spec, part) for part in range(len(spec.train) + 1)]
    pixels, labels = np.concatenate([p for p, _ in files]), np.concatenate([y for _, y in files])
    n_train = N * len(spec.train)
    x = np.concatenate([ds.train_x.numpy(), ds.test_x.numpy()])
    y = np.concatenate([ds.train_y.numpy(), ds.test_y.numpy()])
    assert x.dtype == np.uint8
    assert y.dtype == np.int64
    assert len(ds.train_y) == n_train
    assert len(ds.test_y) == N
    assert np.array_equal(y, labels)
    # channel by channel, each row by row
    for k in range(len(pixels)):
        assert x[k, 1, 2, 5] == pixels[k, 1024 + 2 * 32 + 5]
    assert np.array_equal(x.reshape(-1, 3072), pixels)
    assert ds.n_classes == spec.n_classes
    assert ds.input_shape == (3, 32, 32)
    assert ds.augmentable
    assert ds.name == spec.name


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    def refuse(url, timeout):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("where", ["itself", "parent"])
def test_binary_layout(spec, where, tmp_path):
    directory = write_binary(spec, tmp_path)
    assert_is_written(load_from(spec, directory if where == "itself" else tmp_path), spec)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("where", ["itself", "parent"])
@pytest.mark.parametrize("protocol", [0, 2, 3, 4])
@pytest.mark.parametrize("key", [str, str.encode], ids=["str keys", "bytes keys"])
def test_python_layout(spec, where, protocol, key, tmp_path):
    directory = write_python(spec, tmp_path, protocol, key)
    assert_is_written(load_from(spec, directory if where == "itself" else tmp_path), spec)


def test_python_layout_with_the_old_numpy_module_name(tmp_path):
    directory = write_python(SMALL, tmp_path)
    for path in directory.iterdir():
        old = path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
        assert b"numpy.core.multiarray" in old
        path.write_bytes(old)
    assert_is_written(load_from(SMALL, tmp_path), SMALL)


def test_python_2_pickles_are_read(tmp_path):
    """The official files: Python 2 str (opcode U/T, no encoding) for the keys and for the pixels."""
    directory = tmp_path / SMALL.python_dir
    directory.mkdir()
    for part, (name, _) in enumerate(SMALL.train + SMALL.test):
        pixels, labels = samples(SMALL, part)

        def text(value):
            return b"T" + len(value).to_bytes(4, "little") + value

        array = (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt" + text(b"b") + b"tR"
            b"(I1\n(I%d\nI3072\ntcnumpy\ndtype\n(" % N + text(b"u1") + b"I0\nI1\ntR"
            b"(I3\n" + text(b"|") + b"NNNI-1\nI-1\nI0\ntbI00\n" + text(pixels.tobytes()) + b"tb"
        )
        numbers = b"(" + b"".join(b"I%d\n" % label for label in labels) + b"l"
        (directory / name).write_bytes(b"\x80\x02}(" + text(b"data") + array + text(b"labels") + numbers + b"u.")
    assert_is_written(load_from(SMALL, tmp_path), SMALL)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("layout", ["binary", "python"])
def test_archive_is_unpacked_once(spec, layout, tmp_path):
    name = getattr(spec, f"{layout}_dir")
    write = write_binary if layout == "binary" else write_python
    directory = write(spec, tmp_path / "src")
    (directory / "readme.html").write_text("not needed")
    archive = tmp_path / getattr(spec, f"{layout}_archive")
    pack(directory, archive)
    assert_is_written(load_from(spec, tmp_path), spec)
    wanted = {file + ".bin" * (layout == "binary") for file, _ in spec.train + spec.test}
    assert {path.name for path in (tmp_path / name).iterdir()} == wanted
    archive.unlink()
    assert_is_written(load_from(spec, tmp_path), spec)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path):
    directory = write_python(SMALL, tmp_path)
    target = tmp_path / "pwned"
    body = pickle.dumps({"data": Attack(str(target)), "pad": b"x" * N * 3072}, protocol=2)
    (directory / "data_batch_2").write_bytes(body)
    said = refusal(load_from, SMALL, tmp_path)
    assert re.search(r"data_batch_2 was refused: its pickle asks for (posix|nt)\.mkdir", said)
    assert not target.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"\x80\x02cbuiltins\neval\n(X\x01\x00\x00\x001tR.",
        b"\x80\x02cnumpy\nload\n.",
        b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR.",
        b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",  # a dotted name would walk to other objects
    ],
)
def test_other_globals_are_refused(body, tmp_path):
    directory = write_python(SMALL, tmp_path)
    (directory / "test_batch").write_bytes(body + b"\0" * N * 3072)
    assert "was refused: its pickle asks for" in refusal(lambda: load_from(SMALL, tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["a list", b"x" * N * 3072], "holds a list"),
        ({"labels": [0] * N, "pad": b"x" * N * 3072}, "'data' is missing"),
        ({"data": np.zeros((N, 3072), np.int16), "labels": [0] * N}, "'data' is int16"),
        ({"data": np.zeros((N + 1, 3072), np.uint8), "labels": [0] * N}, "'data' is uint8 (7, 3072)"),
        ({"data": np.zeros((N, 3072), np.uint8)}, "'labels' is missing"),
        ({"data": np.zeros((N, 3072), np.uint8), "labels": [0] * (N - 1)}, "'labels' is a list of 5"),
        ({"data": np.zeros((N, 3072), np.uint8), "labels": [0.5] * N}, "not a list of 6 integers"),
        (
            {"data": np.zeros((N, 3072), np.uint8), "labels": [0, 1, 10, 0, 0, 0]},
            "record 2 has label 10, expected 0 to 9",
        ),
        ({"data": np.zeros((N, 3072), np.uint8), "labels": [0, -1, 1, 0, 0, 0]}, "record 1 has label -1"),
    ],
)
def test_a_pickle_with_other_content_is_refused(content, message, tmp_path):
    directory = write_python(SMALL, tmp_path)
    (directory / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
    assert message in refusal(load_from, SMALL, tmp_path)


def test_a_damaged_pickle_is_refused(tmp_path):
    directory = write_python(SMALL, tmp_path)
    path = directory / "data_batch_1"
    for body in (path.read_bytes()[: N * 3072 + 5], b"\xff" * N * 3073, b"\0" * N * 3073):
        path.write_bytes(body)
        assert "data_batch_1 is not a readable CIFAR pickle" in refusal(load_from, SMALL, tmp_path)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("change", [-1, 1, None])
def test_binary_file_of_another_size_is_refused(spec, change, tmp_path):
    directory = write_binary(spec, tmp_path)
    path = directory / f"{spec.test[0][0]}.bin"
    body = path.read_bytes()
    path.write_bytes(b"" if change is None else body[:-1] if change < 0 else body + b"\0")
    record = 3072 + len(spec.label_limits)
    said = refusal(load_from, spec, tmp_path)
    assert re.search(f"{path.name} has .* bytes instead of {N * record};", said)


def test_pickle_of_impossible_size_is_refused_before_it_is_read(tmp_path):
    directory = write_python(SMALL, tmp_path)
    with (directory / "test_batch").open("r+b") as file:
        file.truncate(50_000_000)
    assert "test_batch has 50000000 bytes instead of" in refusal(lambda: load_from(SMALL, tmp_path))


@pytest.mark.parametrize(
    ("spec", "offset", "bad"),
    [(SMALL, 0, 10), (SMALL, 0, 255), (small(CIFAR100), 0, 20), (small(CIFAR100), 1, 100)],
)
def test_binary_label_out_of_range_is_refused(spec, offset, bad, tmp_path):
    directory = write_binary(spec, tmp_path)
    path = directory / f"{spec.train[0][0]}.bin"
    body = bytearray(path.read_bytes())
    body[3 * (3072 + len(spec.label_limits)) + offset] = bad
    path.write_bytes(body)
    assert f"record 3 has label {bad}, expected 0 to" in refusal(load_from, spec, tmp_path)


def test_missing_file_beside_the_others_is_named(tmp_path):
    directory = write_binary(SMALL, tmp_path)
    (directory / "data_batch_4.bin").unlink()
    assert "data_batch_4.bin is missing beside data_batch_1.bin" in refusal(lambda: load_from(SMALL, tmp_path))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_offline_message_says_what_to_put_where(name, tmp_path):
    missing = tmp_path / "no" / "where"
    spec, text = cifar.SPECS[name], refusal(load_dataset, name, missing)
    assert "Name or service not known" in text
    assert f"put {spec.binary_archive} (or the unpacked {spec.binary_dir}/) into {missing}" in text
    assert not missing.parent.exists(), "a mistyped path leaves nothing behind"


def test_data_directory_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not a directory" in refusal(lambda: load_dataset("cifar10", tmp_path / "file"))


def test_where_files_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CREDITSCOPE_DATA", raising=False)
    assert data_root(None) == tmp_path / ".cache" / "creditscope"
    monkeypatch.setenv("CREDITSCOPE_DATA", str(tmp_path / "env"))
    assert data_root(None) == tmp_path / "env"
    assert data_root("~/named") == tmp_path / "named"


class Response(io.BytesIO):
    headers = Message()


def serve(monkeypatch, body):
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        return Response(body)

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    return asked


@pytest.mark.parametrize("spec", SPECS)
def test_download_is_checked_unpacked_and_kept(spec, monkeypatch, tmp_path):
    pack(write_binary(spec, tmp_path / "src"), tmp_path / "archive")
    body = (tmp_path / "archive").read_bytes()
    spec = replace(spec, binary_md5=hashlib.md5(body).hexdigest())
    asked = serve(monkeypatch, body)
    root = tmp_path / "new" / "cache"
    assert_is_written(load_from(spec, root), spec)
    assert_is_written(load_from(spec, root), spec)
    assert asked == [f"https://www.cs.toronto.edu/~kriz/{spec.binary_archive}"]
    assert {path.name for path in root.iterdir()} == {spec.binary_archive, spec.binary_dir}


def test_download_with_another_checksum_leaves_nothing(monkeypatch, tmp_path):
    serve(monkeypatch, b"an error page")
    said = refusal(load_dataset, "cifar10", tmp_path)
    assert f"MD5 {hashlib.md5(b'an error page').hexdigest()} instead of c32a1d4a" in said
    assert list(tmp_path.iterdir()) == []


def test_endless_download_is_cut(monkeypatch, tmp_path):
    monkeypatch.setattr(cifar_archive, "MAX_ARCHIVE_BYTES", 1000)
    serve(monkeypatch, b"x" * 1001)
    assert "sent over 1000 bytes" in refusal(lambda: load_dataset("cifar10", tmp_path))
    assert list(tmp_path.iterdir()) == []


def refuse_archive(root, message):
    assert re.search(message, refusal(load_from, SMALL, root))
    assert [path.name for path in root.iterdir()] == [SMALL.binary_archive]


def write_archive(root, members):
    with tarfile.open(root / SMALL.binary_archive, "w:gz") as tar:
        for info, body in members:
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_member_that_is_no_file_is_refused(kind, tmp_path):
    info = tarfile.TarInfo(f"{SMALL.binary_dir}/data_batch_1.bin")
    info.type, info.linkname = kind, "/etc/passwd"
    write_archive(tmp_path, [(info, b"")])
    refuse_archive(tmp_path, "data_batch_1.bin' is not a file of")


def test_member_outside_the_directory_is_never_written(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    names = ["../evil.bin", str(tmp_path / "absolute-evil.bin"), f"{SMALL.binary_dir}/../../evil.bin"]
    write_archive(root, [(tarfile.TarInfo(name), b"x") for name in names])
    refuse_archive(root, r"lacks cifar-10-batches-bin/data_batch_1\.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_archive_bombs_are_refused(tmp_path):
    write_archive(tmp_path, [(tarfile.TarInfo("filler"), b"\0" * (N * 3073 + 1))])
    refuse_archive(tmp_path, "too many or too large members at 'filler'")
    write_archive(tmp_path, [(tarfile.TarInfo(f"f{i}"), b"") for i in range(101)])
    refuse_archive(tmp_path, "too many or too large members at 'f100'")


def test_damaged_archive_is_refused(tmp_path):
    source = write_binary(SMALL, tmp_path / "src")
    root = tmp_path / "root"
    root.mkdir()
    archive = root / SMALL.binary_archive
    pack(source, archive)
    body = archive.read_bytes()
    for damaged in (b"", b"garbage" * 100, body[: len(body) // 2], body[:5000] + b"\xff" * 200 + body[5200:]):
        archive.write_bytes(damaged)
        refuse_archive(root, "is damaged|is not a file of|lacks")


def test_the_official_sizes():
    binary, python = cifar._layouts(CIFAR10)
    assert binary.sizes["data_batch_1.bin"] == (30_730_000, 30_730_000)
    assert len(binary.sizes) == len(python.sizes) == 6
    assert python.sizes["data_batch_1"][0] <= 31_035_704 <= python.sizes["data_batch_1"][1]  # the published file
    binary, python = cifar._layouts(CIFAR100)
    assert binary.sizes["train.bin"][0] == 153_700_000
    assert binary.sizes["test.bin"][0] == 30_740_000
    assert python.sizes["train"][0] <= 155_249_918 <= python.sizes["train"][1]
