"""What a service would refuse of a run is asked before anything starts."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from typing import Any

from claw_base.run_folder.usage import Meter, meter_path
from slime.errors import ConfigError
from slime.rented.engine.launch import check_tokenizer
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.service import ServiceAway, ServiceRefuses, ServiceSettings, connect

PATIENCE = 20.0  # seconds


def ask_first(args: Any) -> None:
    """Whether the service takes the key, has the model, and reads the ids of this tokenizer as text.

    A service that is away is told of in one line, and left to the run, which waits for it.

    Args:
        args: parsed arguments of the driver.

    Raises:
        ConfigError: the service refuses the run.
    """
    answer: Future[int] = Future()
    threading.Thread(target=_answer, args=(answer, args), daemon=True).start()
    try:
        Meter(meter_path(args.run_dir, "start"), "serving").add(prefill=answer.result(PATIENCE))
    except ServiceRefuses as error:
        raise ConfigError(f"the service refuses this run: {error}") from error
    except (ServiceAway, TimeoutError) as error:
        told = str(error) or f"no answer for {PATIENCE:g} s"
        print(
            f"the service does not answer, the run starts and waits for it: {told}",
            file=sys.stderr,
            flush=True,
        )


def _answer(answer: Future[int], args: Any) -> None:
    try:
        service = connect(args.rented_service, ServiceSettings(args.rented_model, args.rented_url))
        service.check()
        folder = ModelFolder.read(args.hf_checkpoint)
        answer.set_result(check_tokenizer(service.sampler(None), folder))
    except Exception as error:
        answer.set_exception(error)
