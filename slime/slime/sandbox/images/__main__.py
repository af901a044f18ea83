"""Gets images before a run needs them: `python -m slime.sandbox.images NAME_OR_ARCHIVE ... [--again]`.

Names may come from a file, one a line (`--from FILE`). A line of JSON for each image; 1 where one could not be had.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from slime.errors import ClawError
from slime.sandbox.images.cache import image_of


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m slime.sandbox.images", description="Gets and unpacks images of containers."
    )
    parser.add_argument("names", nargs="*", help="images that podman or docker have or can pull, or archives")
    parser.add_argument("--from", dest="file", type=Path, help="a file with further names, one a line")
    parser.add_argument(
        "--again", action="store_true", help="ask whether names stand for other images by now"
    )
    said = parser.parse_args()
    names = [*said.names, *(said.file.read_text().split() if said.file else ())]
    if not names:
        parser.error("name an image")
    failed = False
    for name in names:
        began = time.monotonic()
        try:
            image = image_of(name, again=said.again)
        except ClawError as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
            continue
        about = {"image": name, "path": str(image.path), "mib": image.size >> 20, "entries": image.entries}
        print(json.dumps({**about, "seconds": round(time.monotonic() - began, 2)}), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
