"""Serve at home, sample and train at Tinker: `python openclaw-tinker/run.py --method rl --model-path FOLDER`.

`--help` lists flags and variables; `--dry-run` starts nothing. README.md has the whole of it.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("", "slime", "openclaw-rl", "openclaw-opd", "openclaw-combine", "openclaw-tinker", "openclaw-test")
PATHS = [str(ROOT / folder) for folder in FOLDERS]


def main() -> int:
    sys.path[:0] = PATHS
    from openclaw_tinker.service import check_sdk, read_key
    from openclaw_tinker.settings import parse
    from openclaw_tinker.words import driver_words, run_dir
    from slime.arguments import parse_args
    from slime.errors import ConfigError

    try:
        flags, rest = parse(sys.argv[1:])
        check_sdk()
        read_key()
        folder = run_dir(flags, ROOT)
        words = [*driver_words(flags, os.environ, folder), *rest]
        parse_args(words)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    driver = [sys.executable, str(ROOT / "slime" / "train_async.py"), *words]
    if flags.dry_run:
        print("# would start, in the run folder", folder)
        print(shlex.join(driver))
        return 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(folder), "--", *driver]
    return os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main())
