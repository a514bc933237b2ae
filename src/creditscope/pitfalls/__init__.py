"""The catalogue of pitfalls: fifteen ways in which a credit measurement misleads, each shown, detected and explained."""

from __future__ import annotations

from creditscope.pitfalls.base import Answer, Pitfall, Reproduction
from creditscope.pitfalls.registry import PITFALLS, get_pitfall
from creditscope.pitfalls.scan import Finding, Scan, scan

__all__ = ["PITFALLS", "get_pitfall", "Pitfall", "Reproduction", "Answer", "scan", "Scan", "Finding"]
