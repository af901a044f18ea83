"""Records the responses of a real server of Tinker's protocol: `bash lab/run.sh long.record_tinker --url URL --model
FOLDER`.

`record_tinker.sh` starts one. It writes shapes, and errors without names, with which the tests' fake is compared.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from claw_lab import ROOT
from tests.fakes.tinker_talk import recorded

RECORDED = ROOT / "tests" / "openclaw_tinker" / "recorded.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True, help="the server's name of its base model")
    parser.add_argument("--out", type=Path, default=RECORDED)
    options = parser.parse_args()
    rows = recorded(options.url, options.model)
    options.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{len(rows)} answers in {options.out}")


if __name__ == "__main__":
    main()
