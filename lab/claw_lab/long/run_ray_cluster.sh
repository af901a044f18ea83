#!/usr/bin/env bash
# A Ray cluster of several nodes on this machine, on a CPU: jobs through Ray's API, the launch script's roles, the loss of
# nodes and of Ray itself, while people go on talking. About ten minutes; 2 GiB of memory. Needs Ray's dashboard, in a
# Python of its own.   Usage: bash lab/claw_lab/long/run_ray_cluster.sh [FOLDER OF THE ENVIRONMENT [jobs|roles]]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
export ROOT=$root VENV=${1:-$HOME/.cache/openclaw-rl/ray-cluster}
# shellcheck source=../../../launch/env.sh
source "$root/launch/env.sh"
ensure_env "$root/requirements.txt" "$root/instructions/requirements-gpu.txt"
exec "$PY" -m claw_lab.long.ray_cluster "${@:2}"
