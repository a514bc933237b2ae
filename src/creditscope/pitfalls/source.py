"""A user's Python file as the code rules see it: syntax tree, imports, scopes, and which names hold gradients.

Nothing is executed or imported. Names are followed inside one scope only, without regard to branches; where a rule needs
the order of statements it uses line numbers. Every rule prefers silence to a doubtful alarm.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from creditscope.pitfalls.base import Spot

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
"""Nodes without a place in the text; Python uses one object for all of a kind."""

GRADIENT = {"grad", "grads", "gradient", "gradients"}
NO_GRADIENT = {
    "no", "requires", "enable", "enabled", "zero", "clip", "fn", "set", "is", "has", "norm", "norms", "scaler",
}  # fmt: skip
"""Words that turn a name with "grad" in it into something else than a gradient tensor."""
WEAK = {"g", "gs", "dh", "delta", "deltas", "credit", "credits"}
"""Words that mean a gradient only in a file that computes gradients."""
UNIT = {"unit", "normed", "normalized", "normalised", "hat", "direction", "directions", "sign"}
HIDDEN = {
    "h", "hs", "hid", "hidden", "hiddens", "activation", "activations", "act", "acts", "state", "states", "residual",
}  # fmt: skip

KEEPS_VALUES = {
    "detach", "clone", "flatten", "view", "reshape", "float", "double", "half", "bfloat16", "cpu", "cuda", "to",
    "type", "contiguous", "squeeze", "unsqueeze", "mean", "sum", "t", "transpose", "permute", "ravel", "numpy",
    "expand", "values",
}  # fmt: skip
"""Tensor methods after which a gradient is still a gradient."""
COMBINES = {
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "flatten", "list", "tuple", "parameters_to_vector",
}  # fmt: skip
NORMS = {"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm", "numpy.linalg.norm", "jax.numpy.linalg.norm"}
COSINES = {"torch.nn.functional.cosine_similarity", "torch.cosine_similarity"}
AUTOGRAD = {"torch.autograd.grad"}


def words(name: str) -> set[str]:
    """The words of an identifier in lower case: "gBP_l" -> {"g", "bp", "l"}, "fb_1" -> {"fb", "1"}."""
    return {w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def number(node: ast.AST | None) -> float | int | None:
    """The value of a numeric literal, with its sign; None for anything else (True and False included)."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = number(node.operand)
        return None if value is None else -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def argument(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    """An argument by position or by any of its names; None if absent or hidden behind a star."""
    for name in names:
        if (value := keyword(call, name)) is not None:
            return value
    before = call.args[: position + 1]
    if len(before) > position and not any(isinstance(a, ast.Starred) for a in before):
        return before[position]
    return None


def stars(call: ast.Call) -> bool:
    """True if the call passes *args or **kwargs: its arguments are then not known."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def is_literal(node: ast.AST | None, value: object) -> bool:
    """True, False or a text, written out."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def method(node: ast.AST) -> tuple[str, ast.expr | None]:
    """x.norm(...) -> ("norm", x); ("", None) for any other expression."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name, value=owner)):
            return name, owner
    return "", None


def names_in(node: ast.AST) -> set[str]:
    """Plain names in an expression."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def last_name(node: ast.AST) -> str:
    """The identifier that a reader would call the expression by: x.y.z -> z, f(...) -> f, a[0] -> a; "" if none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.Call(func=inner):
            return last_name(inner)
    return ""


def is_hidden(node: ast.expr) -> bool:
    """A hidden state, or a list with one, by its name."""
    if isinstance(node, ast.List | ast.Tuple):
        return any(map(is_hidden, node.elts))
    return bool(words(last_name(node)) & HIDDEN)


class Source:
    """One parsed file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.tree = ast.parse(data, filename=str(path))
        self.lines = [line.decode("utf-8", "replace") for line in data.splitlines()]
        self.nodes: list[ast.AST] = [self.tree]
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in self.nodes:  # grows while it is read; a parent always comes before its children
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, SHARED):
                    self.nodes.append(child)
                    self.parents[child] = node
        self._gradients: dict[Scope, set[str]] = {}
        self._unit: dict[Scope, set[str]] = {}

    # ---- structure ----------------------------------------------------------------------------------------------

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while (node := self.parents.get(node)) is not None:  # type: ignore[assignment]
            yield node

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in self.nodes if isinstance(node, FUNCTIONS)]

    @cached_property
    def scopes(self) -> list[Scope]:
        """The module and every function."""
        return [self.tree, *self.functions]

    def scope_of(self, node: ast.AST) -> Scope:
        for above in self.ancestors(node):
            if isinstance(above, (ast.Module, *FUNCTIONS)):
                return above
        return self.tree

    @cached_property
    def within(self) -> dict[Scope, list[ast.AST]]:
        """The nodes of a scope in the order of the text, without those of functions inside it."""
        inside: dict[Scope, list[ast.AST]] = {scope: [] for scope in self.scopes}
        home: dict[ast.AST, Scope] = {self.tree: self.tree}
        for node in self.nodes[1:]:
            above = self.parents[node]
            scope = home[node] = above if isinstance(above, FUNCTIONS) else home[above]
            inside[scope].append(node)
        for nodes in inside.values():
            nodes.sort(key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0)))
        return inside

    @cached_property
    def calls_in(self) -> dict[Scope, list[ast.Call]]:
        return {s: [node for node in nodes if isinstance(node, ast.Call)] for s, nodes in self.within.items()}

    def spot(self, node: ast.expr | ast.stmt, message: str) -> Spot:
        line = self.lines[node.lineno - 1] if node.lineno <= len(self.lines) else ""
        col = len(line.encode("utf-8", "replace")[: node.col_offset].decode("utf-8", "replace")) + 1
        return Spot(node.lineno, col, node.end_lineno or node.lineno, message)

    # ---- names --------------------------------------------------------------------------------------------------

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name -> dotted name of what was imported."""
        known: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.split(".")[0]
                    known[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return known

    def dotted(self, node: ast.AST) -> str:
        """`F.cosine_similarity` -> "torch.nn.functional.cosine_similarity" through the imports; "" if not a plain name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imports.get(node.id, node.id))
        return ".".join(reversed(parts))

    def is_call(self, node: ast.AST, names: Iterable[str]) -> bool:
        return isinstance(node, ast.Call) and self.dotted(node.func) in names

    # ---- assignments --------------------------------------------------------------------------------------------

    @cached_property
    def bindings(self) -> dict[Scope, list[tuple[ast.expr, ast.expr]]]:
        """(target, value) of every assignment, loop and comprehension of a scope; tuples, zip and enumerate are paired."""
        return {scope: list(self._bound(scope)) for scope in self.scopes}

    def _bound(self, scope: Scope) -> Iterator[tuple[ast.expr, ast.expr]]:
        for node in self.within[scope]:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from paired(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                yield from paired(node.target, node.value)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                yield from looped(node.target, node.iter)

    # ---- gradients ----------------------------------------------------------------------------------------------

    @cached_property
    def computes_gradients(self) -> bool:
        """Whether the file takes gradients at all: only then do short names (g, delta) count as gradients."""
        attributes = {node.attr for node in self.nodes if isinstance(node, ast.Attribute)}
        return (
            not attributes.isdisjoint({"grad", "backward", "retain_grad", "autograd"})
            or any(name.endswith("backward_hook") for name in attributes)
            or any(name.startswith("torch.autograd") for name in self.imports.values())
        )

    def gradient_names(self, scope: Scope) -> set[str]:
        """Names that hold gradients by where their value comes from."""
        if scope not in self._gradients:
            names = self._gradients[scope] = set()
            pairs = self.bindings[scope]
            for _ in range(4):  # a chain of at most four assignments
                before = len(names)
                for target, value in pairs:
                    if self.is_gradient(value, scope):
                        names.update(names_in(target))
                if len(names) == before:
                    break
            unit = {t.id for t, value in pairs if isinstance(t, ast.Name) and self.is_unit(value)}
            names -= unit
            self._unit[scope] = unit
        return self._gradients[scope]

    def is_unit(self, node: ast.expr) -> bool:
        """x / x.norm(...) or F.normalize(x): a direction, whose size is 1."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            named = {"norm", "norms"} & words(last_name(node.right))
            return bool(named) or any(self.is_norm(n) for n in ast.walk(node.right))
        return isinstance(node, ast.Call) and last_name(node.func) in ("normalize", "normalise")

    def is_norm(self, node: ast.AST) -> bool:
        """A call that gives the size of a tensor."""
        if not isinstance(node, ast.Call):
            return False
        if self.dotted(node.func) in NORMS:
            return True
        return isinstance(node.func, ast.Attribute) and node.func.attr == "norm" and not self._module_norm(node)

    def _module_norm(self, call: ast.Call) -> bool:
        """self.norm(x) is a normalisation layer, x.norm(2) a size; np.linalg.norm(x) is known by its dotted name."""
        first = call.args[0] if call.args else None
        return first is not None and number(first) is None and not isinstance(first, ast.Constant | ast.UnaryOp)

    def measured_by_norm(self, call: ast.Call) -> ast.expr | None:
        """Whose size a norm call takes."""
        if self.dotted(call.func) in NORMS:
            return argument(call, 0, "input", "x", "A")
        return call.func.value if isinstance(call.func, ast.Attribute) else None

    def is_gradient(self, node: ast.AST, scope: Scope) -> bool:
        """Whether an expression looks like a gradient (by name) or comes from one (by assignment), raw in size."""
        parts: list[ast.expr] = []
        match node:
            case ast.Name(id=name):
                return self._named_gradient(name, scope)
            case ast.Attribute(attr=name) if name not in ("T", "mT", "data"):
                return name == "grad" or self._gradient_word(name)
            case ast.Call():
                return self._gradient_call(node, scope)
            case ast.Attribute(value=x) | ast.Subscript(value=x) | ast.Starred(value=x) | ast.UnaryOp(operand=x):
                parts = [x]
            case ast.ListComp(elt=x) | ast.GeneratorExp(elt=x) | ast.DictComp(value=x):
                parts = [x]
            case ast.BinOp(left=x, right=y) if not self.is_unit(node):
                parts = [x, y]
            case ast.IfExp(body=x, orelse=y):
                parts = [x, y]
            case ast.List(elts=items) | ast.Tuple(elts=items):
                parts = items
        return any(self.is_gradient(part, scope) for part in parts)

    def _gradient_call(self, node: ast.Call, scope: Scope) -> bool:
        name = self.dotted(node.func)
        if name in AUTOGRAD:
            return True
        if name.startswith(("torch.", "numpy.")) or name in COMBINES:
            return name.rsplit(".", 1)[-1] in COMBINES and any(self.is_gradient(a, scope) for a in node.args)
        if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS_VALUES:
            return self.is_gradient(node.func.value, scope)
        return self._gradient_word(last_name(node.func))

    def _named_gradient(self, name: str, scope: Scope) -> bool:
        known = self.gradient_names(scope)
        if name in self._unit.get(scope, ()):
            return False
        if name in known or self._gradient_word(name):
            return True
        name_words = words(name)
        weak = bool(name_words & WEAK) and len(name_words) <= 3 and not name_words & (UNIT | NO_GRADIENT)
        return weak and self.computes_gradients

    @staticmethod
    def _gradient_word(name: str) -> bool:
        name_words = words(name)
        return bool(name_words & GRADIENT) and not name_words & (NO_GRADIENT | UNIT)


def paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """a, b = x, y -> (a, x), (b, y); otherwise the whole target with the whole value."""
    many = ast.Tuple | ast.List
    if isinstance(target, many) and isinstance(value, many) and len(target.elts) == len(value.elts):
        for t, v in zip(target.elts, value.elts, strict=True):
            yield from paired(t, v)
        return
    yield target, value


def looped(target: ast.expr, values: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """for a, b in zip(x, y) -> (a, x), (b, y); for k, v in enumerate(x) -> (v, x) and no more about k."""
    if isinstance(values, ast.Call) and isinstance(target, ast.Tuple):
        name = last_name(values.func)
        if name == "enumerate" and len(target.elts) == 2 and values.args:
            yield from looped(target.elts[1], values.args[0])
            return
        if name == "zip" and len(target.elts) == len(values.args):
            for t, v in zip(target.elts, values.args, strict=True):
                yield from looped(t, v)
            return
    if not isinstance(target, ast.Tuple):
        yield target, values
