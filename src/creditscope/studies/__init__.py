"""Studies: many runs, one question, one table, one figure."""
