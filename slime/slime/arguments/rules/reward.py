"""Refuses rewards that do not exist or lack what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments


def check_reward(args: Arguments) -> None:
    """Checks the flags of `slime.arguments.groups.reward`. Raises ConfigError."""
    from slime.rollout.rm_hub import check_rm_type  # the graders' libraries load only where they are used

    if args.custom_rm_path and args.rm_type:
        raise ConfigError("--custom-rm-path and --rm-type both say where rewards come from; drop one of them")
    if args.rm_type:
        check_rm_type(args.rm_type, args.rm_url)
