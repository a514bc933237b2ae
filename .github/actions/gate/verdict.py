#!/usr/bin/env python3
"""Judge report files strictly: exit code 3 where one fails, 4 where one neither fails nor passes. Needs creditscope installed."""

import subprocess
import sys

codes = [
    subprocess.run([sys.executable, "-m", "creditscope", "diagnose", report, "--strict"], check=False).returncode
    for report in sys.argv[1:]
]
sys.exit(3 if 3 in codes else max(codes, default=0))
