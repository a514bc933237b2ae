"""What the credit rules say of themselves."""

from __future__ import annotations

from md import attribute_docs, plain, table

from creditscope.credit.base import Options
from creditscope.credit.registry import make_rule, rule_class

BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
NORM = "credit_norm must be given (`none` or `rms`); credit_site is `input` unless said otherwise"
SITE = "; block l learns from a_(l+1)"
OBJECTIVES = {
    "local": "local: block l minimises ⟨f_l(h_l), a⟩",
    "exact": "backpropagation end to end",
    "own": "the rule's own parameter gradients",
}


def rule_facts(name: str) -> str:
    """One line of summary and what applies to the rule."""
    rule = rule_class(name)
    exact = make_rule(name).exact_layers(4)
    layers = "none" if not exact else "all" if len(exact) == 5 else ", ".join(f"a_{k}" for k in exact) + " of L = 4"
    rows = [
        ["`--method`", f"`{name}`"],
        ["in one line", plain(rule.summary)],
        ["credit_norm, credit_site", NORM if rule.uses_norm else f"do not apply{SITE if rule.site else ''}"],
        ["objective", plain(OBJECTIVES[rule.objective])],
        ["exact by construction", plain(layers)],
        ["fresh-B null", "yes" if rule.has_feedback else "not applicable"],
    ]
    return table(["", ""], rows)


def rule_options(name: str) -> str:
    """The options with defaults, limits and meaning, or one line where there are none."""
    options = rule_class(name).Options
    if options is Options:
        return f"`{name}` has no options of its own.\n"
    docs = {}
    for cls in reversed(options.__mro__[: options.__mro__.index(Options)]):
        docs |= attribute_docs(cls)
    rows = []
    for key, field in options.model_fields.items():
        kind = field.annotation
        choices = getattr(kind, "__args__", ())
        bounds = ((sign, getattr(m, k, None)) for m in field.metadata for k, sign in BOUNDS.items())
        limits = [f"{sign} {value:g}" for sign, value in bounds if value is not None]
        allowed = ", ".join(map(str, choices)) or ", ".join(limits) or getattr(kind, "__name__", "")
        rows.append([f"`{key}`", f"`{field.default}`", plain(allowed), plain(docs[key])])
    return table(["`--option`", "default", "allowed", "what it is"], rows)
