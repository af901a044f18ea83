#!/usr/bin/env bash
# RL of Qwen3-32B that repairs repositories on other hosts, on eight machines with 8 GPUs each (trainer 32, policy 32); run it on all.
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 RUN_DIR=/shared/run SWE_EXEC_SERVER_URLS=http://10.0.1.1:18081,http://10.0.1.2:18081 SWE_BENCH_PATH=/shared/swe HF_CKPT=/shared/Qwen3-32B bash swe-rl/run_swe_rl_32b_remote_8nodes.sh
#   DRY_RUN=1 bash swe-rl/run_swe_rl_32b_remote_8nodes.sh   the plan and every argument; needs no GPU
# Each of these hosts serves repositories before (README.md, "Other hosts"). The run starts a router over them and watches it.
# Variables and flags: swe-rl/README.md, instructions/cluster.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/swe-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=swe_rl_32b_remote_8nodes MODEL=Qwen3-32B
default CONTEXT_LENGTH 16384
swe_defaults
default PARALLEL_ENVS 128
default NNODES 8
default ACTOR_NODES 4
default ACTOR_GPUS 8
default ROLLOUT_GPUS 32
default TP 4
default TRAIN_TP 8
default MAX_TOKENS_PER_GPU 8192
default LOG_PROBS_CHUNK_SIZE 512
default MEM_FRACTION_STATIC 0.55
hosts=${SWE_EXEC_SERVER_URLS:-}${SWE_ENV_SERVER_URL:-}${ENV_SERVER_URL:-}
case "$hosts $* " in
  *' --help '* | *' -h '* | *--exec-server-urls* | *--env-server-url* | http*) ;;
  *)
    MISSING="SWE_EXEC_SERVER_URLS is not set to URLs: give the addresses of the hosts that serve repositories (swe-rl/README.md)"
    is_dry_run || die "$MISSING"
    ;;
esac
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${SWE[@]}" "${SWE_RL[@]}" --num-rollout 2000 --rollout-batch-size 8 --n-samples-per-prompt 8 --save-interval 2)
run_gpu "$@"
