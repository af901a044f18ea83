#!/usr/bin/env bash
# The first start on a rented node, rehearsed without a GPU: the launch scripts as they are printed, Ray, trainers, judge and
# gateway as they are, and real SGLang on the CPU; only the GPUs are pretended (gpu_node/pretend_gpus.py). About fifteen
# minutes and 10 GiB of memory on two cores, and 3.4 GB of downloads the first time (shared with run_sglang.sh).
# Usage: bash lab/claw_lab/long/gpu_node.sh [FOLDER OF SGLANG'S ENVIRONMENT [REHEARSAL...]]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=engine.sh
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
env_dir=${1:-${SGLANG_ENV:-$HOME/.cache/openclaw-rl/sglang-cpu}}

sglang_on_cpu "$env_dir"
two_models
(
  ROOT=$root
  # shellcheck source=../../../launch/tiny.sh
  source "$root/launch/tiny.sh"
  # shellcheck source=../../../launch/smollm2.sh
  source "$root/launch/smollm2.sh"
  ensure_smollm2
)
"$python" -m claw_lab.long.gpu_node.rehearse "$work" "$env_dir/bin/python" "${@:2}"
