"""`python -m rented_run.before MODULE:CLOUD ARG...`: checks a start on rented GPUs before anything is installed.

Missing packages are replaced by stand-ins, as in `slime.plan.words`, whose exit statuses are used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rented_run.paths import ROOT
from slime.errors import ConfigError
from slime.plan import stand_ins
from slime.plan.misspelt import misspelt_variables
from slime.plan.words import ANSWERED, SLOW

REFUSED = 2


def main(argv: Sequence[str]) -> int:
    cloud, *words = argv
    try:
        return check(cloud, words)
    except ModuleNotFoundError:
        stand_ins.install()
    except Exception:  # the start itself reports it
        return 0
    try:
        return check(cloud, words)
    except Exception:
        return 0


def check(cloud: str, words: Sequence[str]) -> int:
    """Returns an exit status. Raises ModuleNotFoundError for a package that is not installed."""
    from rented_run.flags import variables
    from rented_run.main import read
    from slime.plugins import load_attr

    rented = load_attr(cloud)
    try:
        *_, driver, _ = read(rented, words, installed=False)
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise error.__cause__ from None
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except SystemExit as end:
        return REFUSED if end.code else ANSWERED
    for line in misspelt_variables([str(ROOT / "launch")], driver, os.environ, variables(rented.flags)):
        print(f"warning: {line}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    stand_ins.replace(*SLOW)
    sys.exit(main(sys.argv[1:]))
