"""Words about a stream that stored facts are read by: no torch is imported here, so that a verdict on a file needs none."""

from __future__ import annotations

TOKEN_READS = {"cls": "cls token", "last": "last token", "mean": "token mean"}
"""Reads that take one vector of the tokens of a sample, and its name."""
GIVEN_AS_ARRAYS = "given as arrays: the network itself was not seen"
"""The note of every stream of arrays."""
