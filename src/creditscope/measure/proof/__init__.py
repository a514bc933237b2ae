"""Proof that a network is seen rightly, on a few samples at every measurement; what cannot be proved is refused or marked.

Refused: logits that are not the model's own, a state that cannot be replaced by itself, a reference that is no gradient.
Marked: samples that influence each other, states that do not carry everything.
"""

from creditscope.measure.proof.excerpt import Excerpt
from creditscope.measure.proof.native import own_states
from creditscope.measure.proof.own_runs import prove
from creditscope.measure.proof.seen import Seen

__all__ = ["Excerpt", "Seen", "own_states", "prove"]
