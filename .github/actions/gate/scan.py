#!/usr/bin/env python3
"""Scan Python files for pitfalls with this checkout of creditscope; needs nothing but Python 3.10 or newer."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "src"))

from creditscope.pitfalls.__main__ import main

sys.exit(main())
