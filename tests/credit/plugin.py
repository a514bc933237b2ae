"""A rule as another package would bring it (through an entry point)."""

from creditscope import CreditRule


class Theirs(CreditRule):
    name = "theirs"
    summary = "a rule of another package"
