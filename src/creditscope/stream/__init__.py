"""How a model is seen, and the proof that it is seen rightly."""
