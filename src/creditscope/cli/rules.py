"""creditscope rules"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from creditscope.cli.parse import parse


@dataclass
class Rules:
    options: bool = False
    """Also list the settings of each rule with their defaults."""


def run(args: Sequence[str]) -> int:
    flags = parse(
        Rules,
        args,
        "rules",
        "List every credit rule that can be trained and measured: those of the papers, of installed packages (entry points "
        "creditscope.credit_rules) and of the files that CREDITSCOPE_RULES names.",
        "CREDITSCOPE_RULES=my_rule.py creditscope rules --options",
    )
    from creditscope.credit.registry import all_rules, origin

    rules = all_rules()
    width = max(map(len, rules))
    for name, rule in rules.items():
        where = "" if origin(name) == "creditscope" else f" [{origin(name)}]"
        print(f"{name:<{width}}  {rule.summary}{where}")
        if flags.options:
            for key, field in rule.Options.model_fields.items():
                print(f"{'':<{width}}    --option {key}={field.default}")
    return 0
