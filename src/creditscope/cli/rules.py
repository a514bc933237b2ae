"""creditscope rules"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Rules:
    """List every credit rule that can be trained and measured: those of the papers, of installed packages (entry
    points creditscope.credit_rules) and of the files that CREDITSCOPE_RULES names.

    Example: CREDITSCOPE_RULES=my_rule.py creditscope rules --options
    """

    options: bool = False
    """Also list the settings of each rule with their defaults."""

    def execute(self) -> int:
        from creditscope.credit.registry import origin, rule_class, summaries

        rules = summaries()
        width = max(map(len, rules))
        for name, summary in rules.items():
            where = "" if origin(name) == "creditscope" else f" [{origin(name)}]"
            print(f"{name:<{width}}  {summary}{where}")
            if self.options:
                for key, field in rule_class(name).Options.model_fields.items():
                    print(f"{'':<{width}}    --option {key}={field.default}")
        return 0
