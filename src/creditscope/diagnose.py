"""Moved to creditscope/diagnosis.py: the public name `creditscope.diagnose` is the function. Edit that file."""
