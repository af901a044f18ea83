"""An evaluation on the rollout side, as the driver asks for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ray.exceptions import RayActorError

from slime.errors import ClawError, ConfigError
from slime.ray.rollouts import Rollouts
from slime.tracking import Tracker

logger = logging.getLogger(__name__)


def evaluate(rollouts: Rollouts, tracker: Tracker, step: int, look: Callable[[], None]) -> None:
    """Evaluates after `step` rollouts. One that fails is told, and training goes on.

    Args:
        look: called meanwhile; may raise.

    Raises:
        ConfigError: the evaluation cannot work as it is asked for.
    """
    began = time.monotonic()
    tracker.at(step, f"evaluating after {step} rollouts")
    try:
        metrics = rollouts.evaluate(step, look)
    except ConfigError:
        raise
    except (ClawError, RayActorError) as error:
        logger.error("no evaluation after %d rollouts: %s", step, str(error).splitlines()[0])
        return
    tracker.log_evaluation(step, {**metrics, "perf/eval_time": time.monotonic() - began})
