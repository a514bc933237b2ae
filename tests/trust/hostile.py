"""Hostile input: values and bytes that a reader of files must survive, and ways to put them into a good file."""

from __future__ import annotations

import copy
import json
import pickle
import random
import struct
from pathlib import Path
from typing import Any

HOSTILE_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.0, 0.5, 1e308, -1e308, 5e-324,
    "", "NaN", "Infinity", "-Infinity", "x", "../../etc/passwd", "/etc/passwd", "\x00", "\x1b[31m", "é" * 50, "a" * 5000,
    "=1+1", "$(touch x)", "{}", "null", [], {}, [[]], [None], {"": None}, [0] * 1000, {"spec": {}}, [1, "a", None, {}],
]  # fmt: skip


TOKENS = [b"\x00", b"NaN", b"-1", b"1e999", b'"', b"{", b"]", b"\n", b",", b"\xff" * 8, b"!!python/name:os.system "]


class Payload:
    """Unpickled, it would create the canary file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return open, (str(self.canary), "w")


def hostile_bytes(canary: Path) -> list[bytes]:
    """Whole files that are attacks: code in pickles and YAML, sizes that are declared and not there, nesting, long lines."""
    command = f"touch {canary}"
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**40, 2**10], "data_offsets": [0, 2**52]}}).encode()
    overlap = {
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    }
    return [
        b"",
        b"\x00" * 64,
        pickle.dumps(Payload(canary)),
        pickle.dumps({"data": Payload(canary), "labels": []}, protocol=2),
        f"cos\nsystem\n(S'{command}'\ntR.".encode(),
        f"cbuiltins\neval\n(S'open({str(canary)!r}, \"w\")'\ntR.".encode(),
        b"\x80\x04]\x94r\xff\xff\xff\x7f.",  # memo index 2**31: an unpickler that obeys fills 34 GB
        b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",  # a bytearray of a terabyte, declared
        b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b".",  # a frame of a terabyte, declared
        b"cnumpy\nndarray\n((L1099511627776L\ntS'O'\ntR.",  # an array of 2**40 objects
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(L1099511627776L\ntS'b'\ntR.",
        f"!!python/object/apply:os.system ['{command}']".encode(),
        f"method: !!python/object/apply:subprocess.call [['touch', '{canary}']]".encode(),
        f"!!python/object/new:os.system ['{command}']".encode(),
        b"a: &a [x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 110)),
        _laughs(
            [b"width", b"depth", b"ratio", b"epochs", b"seed", b"lr", b"penalty", b"batch_size", b"augment", b"arch"]
        ),
        b"options: &a {b: *a}",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000,
        b"a: " * 20_000,
        b"{" * 20_000,
        b'{"schema_version": ' + b"9" * 5_000 + b"}",
        b'{"schema_version": 1e999}',
        b'{"schema_version": NaN, "spec": Infinity}',
        b'"' + b"a" * 1_000_000,
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2**40) + b"{}",
        struct.pack("<Q", len(header)) + header,
        struct.pack("<Q", len(json.dumps(overlap))) + json.dumps(overlap).encode() + b"\x00" * 4,
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 8) + b'{"a":1} ',
        b"SQLite format 3\x00" + b"\xff" * 200,
        b"\x1f\x8b\x08\x00" + b"\x00" * 30,
    ]


def _laughs(names: list[bytes]) -> bytes:
    """YAML in which each name is nine times the one before it: 9**n elements in a few lines."""
    lines = [names[0] + b": &x0 [x]"]
    lines += [b"%s: &x%d [%s]" % (name, k, b", ".join([b"*x%d" % (k - 1)] * 9)) for k, name in enumerate(names[1:], 1)]
    return b"\n".join(lines)


def mangled_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few local faults: bits, cuts, repeats, splices."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not out:
            return bytes(rng.randrange(256) for _ in range(rng.randint(0, 40)))
        at = rng.randrange(len(out))
        length = rng.choice((1, 1, 2, 8, 64))
        kind = rng.randrange(6)
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[at : at + length] * rng.randint(1, 3)
        elif kind == 4:
            out[at : at + length] = bytes(rng.randrange(256) for _ in range(length))
        else:
            out[at:at] = rng.choice(TOKENS)
    return bytes(out)


def mangled_json(value: Any, rng: random.Random) -> Any:
    """A deep copy with one to three nodes replaced, removed, renamed, added or repeated."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        nodes = list(_containers(value))
        if not nodes:
            return rng.choice(HOSTILE_VALUES)
        node = rng.choice(nodes)
        key = rng.choice(list(node)) if isinstance(node, dict) and node else rng.randrange(len(node)) if node else None
        kind = rng.randrange(5)
        hostile = copy.deepcopy(rng.choice(HOSTILE_VALUES))
        if key is None:
            node.append(hostile) if isinstance(node, list) else node.__setitem__("x", hostile)
        elif kind <= 1:
            node[key] = hostile
        elif kind == 2:
            del node[key]
        elif isinstance(node, dict):
            node["x" if kind == 3 else f"{key} "] = copy.deepcopy(node[key])
        else:
            node.extend(copy.deepcopy(node[:3])) if kind == 3 else node.clear()
    return value


def _containers(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for child in value.values() if isinstance(value, dict) else value:
            yield from _containers(child)
