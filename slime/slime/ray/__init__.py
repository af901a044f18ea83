"""The parts of training that run in Ray: placement, actors, and recovery from failures."""

import os
import secrets

# Ray reads these when it is imported. Workers get no extra niceness, because servers inherit it; they start on
# demand. A dead GCS ends the driver soon, so that the supervisor can start another. A token authenticates every
# connection. The GCS keeps few records of past tasks, so that its memory does not grow.
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

if not os.environ.get("RAY_ADDRESS"):  # an existing cluster has its own settings
    for name, value in LOCAL_SETTINGS.items():
        os.environ.setdefault(name, value)
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        # otherwise Ray would store the token in the home folder, which may be readable by others
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
