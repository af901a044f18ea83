"""Checks that clients work with the server: `python openclaw-test/openclaw_test/conformance --url
http://127.0.0.1:30000`. Every client runs the same checks and prints one line for each.

Exit status 1 if one fails. A client that is not installed is reported as skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from openclaw_test.conformance.run import main

if __name__ == "__main__":
    sys.exit(main())
