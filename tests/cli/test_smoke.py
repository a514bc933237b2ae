"""creditscope smoke: the judgement is tested on facts of known networks; the command itself is run by hand (a minute)."""

from dataclasses import replace

from creditscope.studies.smoke import TRUSTWORTHY, expectations


def test_the_four_networks_and_what_is_expected_of_them():
    bp, dfa, ep, early = expectations()
    assert [e.name for e in (bp, dfa, ep, early)] == ["BP", "DFA (rms)", "EP", "BP stopped early"]
    assert dfa.spec.credit_norm == "rms"
    assert dfa.failed == {"D1", "D2"}
    assert bp.line == ep.line == early.line == TRUSTWORTHY
    assert replace(early, name="x").spec.method == "bp"
