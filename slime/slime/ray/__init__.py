"""The parts of training that Ray runs: placement, actors, and the recovery of those that die."""

import os
import secrets

# Ray reads these when it is imported. Workers are no nicer than the driver, for servers inherit that; they
# start when an actor needs them; a dead GCS ends the driver soon, so that the supervisor can start another; a
# token authenticates every connection; of past tasks the GCS keeps few, so that its memory stays as it is.
LOCAL_SETTINGS = {
    "RAY_worker_niceness": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    "RAY_task_events_max_num_task_in_gcs": "1000",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

if not os.environ.get("RAY_ADDRESS"):  # a cluster that is joined has its own settings
    for name, value in LOCAL_SETTINGS.items():
        os.environ.setdefault(name, value)
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        # Ray would keep one in the home, which others may read
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
