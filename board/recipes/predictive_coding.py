"""Predictive coding by pcx and by FabricPC, in their own loops: python board/recipes/predictive_coding.py [OUT]

Runs examples/pcx and examples/fabricpc, each in an environment of its own (made once, 1.4 GB each, some minutes; a minute after
that), and takes their reports. Seed 0, the embedded data set; null: the same loop with the blocks frozen. No certificate: the
update is not torch's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from common import ROOT, out_of, put

from creditscope import DiagnosticReport

LIBRARIES = {
    "pcx": {"name": "pcx", "version": "0.6.3", "url": "https://github.com/liukidar/pcx", "licence": "Apache-2.0"},
    "fabricpc": {
        "name": "FabricPC",
        "version": "0.6.0",
        "url": "https://github.com/trueagi-io/FabricPC",
        "licence": "MIT",
    },
}


def main(out: Path) -> None:
    for example, code in LIBRARIES.items():
        path = ROOT / "examples" / example / "report.json"
        if "--again" in sys.argv or not path.is_file():
            subprocess.run([sys.executable, str(ROOT / "examples" / "environment.py"), example], check=True)
        report = DiagnosticReport.from_json(path)
        fields = {
            "method": f"predictive coding, {code['name']}",
            "code": code,
            "architecture": report.notes,
            "data": "embedded (quadratic)",
            "claimed": {
                "accuracy": report.headline_acc[0],
                "convention": "one network, test set of 4,000; measured here, not published",
                "source": "the run itself: what accuracy alone would have said",
            },
        }
        put(
            f"{example}-predictive-coding",
            fields,
            [report],
            out,
            seeds=[0],
            recipe="python board/recipes/predictive_coding.py",
        )


if __name__ == "__main__":
    main(out_of([a for a in sys.argv[1:] if a != "--again"]))
