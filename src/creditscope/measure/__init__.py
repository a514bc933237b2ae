"""Facts about a network: one file per fact, plain functions, no thresholds."""
