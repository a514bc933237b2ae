"""Training: one spec, one loop, one local objective, one bundle."""
