"""Exits with status 0 if a file is a JSON list of objects with a key, at least as many as the third argument."""

import json
import sys

try:
    with open(sys.argv[1]) as file:
        found = json.load(file)
except (OSError, ValueError):
    sys.exit(1)
least = int(sys.argv[3]) if len(sys.argv) > 3 else 1
good = isinstance(found, list) and len(found) >= least and all(sys.argv[2] in one for one in found)
sys.exit(0 if good else 1)
