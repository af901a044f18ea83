"""Code of both training programs: logging, signals, exit status."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from slime.errors import CheckpointError, ClusterError, ConfigError
from slime.processes.known_failures import with_advice
from slime.ray.actor_process import LOG_FORMAT
from slime.ray.run import TrainingRun
from slime.ray.stop import OrderlyStop

logger = logging.getLogger(__name__)

CONFIG_ERROR_STATUS = 2
CLUSTER_ERROR_STATUS = 3


def main(train: Callable[[TrainingRun, int], None], parse_args: Callable[[], Any]) -> None:
    """Runs `train` and exits.

    Exit status: 0 done, 2 invalid configuration, 3 insufficient cluster, 128 + n after signal n, 1 any other
    error. Servers are not stopped here: the next driver adopts them, and the supervisor stops them when the
    run ends.
    """
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        args = parse_args()
        with TrainingRun(args) as run:
            stop = OrderlyStop(run)
            stop.watch()  # not earlier: Ray installs its own handlers when it starts
            stop.guard(train, args.num_rollout)
    except (ConfigError, CheckpointError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(CLUSTER_ERROR_STATUS if isinstance(error, ClusterError) else CONFIG_ERROR_STATUS)
    except Exception as error:
        # A broken Ray can take long to shut down; its processes exit with this one anyway.
        logger.exception("%s", with_advice("the driver failed", str(error)))
        os._exit(1)
