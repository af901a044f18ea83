"""How many tokens a model was made for, before any package is there.

`python -m slime.plan.context MODEL` prints them; 0 where its config.json does not say, or is not there.
"""

from __future__ import annotations

import sys
from typing import Any

from slime.errors import ConfigError
from slime.plan.shape import read_config


def most_tokens(config: dict[str, Any]) -> int:
    """Positions of a config.json as SGLang and vLLM count them: a stretched rotation whose config does not tell the
    original length makes them more. 0: it does not say."""
    text = {**config, **(config.get("text_config") or {})}
    rope = text.get("rope_scaling") or {}
    factor = 1.0
    if "original_max_position_embeddings" not in rope and rope.get("rope_type", rope.get("type")) != "llama3":
        factor = float(rope.get("factor") or 1.0)
    return int(factor * (text.get("max_position_embeddings") or 0))


def main() -> int:
    try:
        config, _ = read_config(sys.argv[1])
    except (ConfigError, OSError):
        config = {}
    print(most_tokens(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
