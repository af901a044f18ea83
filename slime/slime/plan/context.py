"""How many tokens a model was made for, before any package is there.

`python -m slime.plan.context MODEL` prints them; 0 where its config.json does not say, or is not there.
"""

from __future__ import annotations

import sys

from slime.errors import ConfigError
from slime.plan.shape import most_tokens, read_config


def main() -> int:
    try:
        config, _ = read_config(sys.argv[1])
    except (ConfigError, OSError):
        config = {}
    print(most_tokens(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
