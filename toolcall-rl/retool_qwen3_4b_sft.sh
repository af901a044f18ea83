#!/usr/bin/env bash
# ReTool's cold start: supervised fine-tuning of Qwen3-4B on conversations with code and its results, on 8 GPUs.
#   PROMPT_DATA=/data/retool_sft.jsonl HF_CKPT=/models/Qwen3-4B-Instruct-2507 bash toolcall-rl/retool_qwen3_4b_sft.sh
#   DRY_RUN=1 bash toolcall-rl/retool_qwen3_4b_sft.sh   the plan and every argument; needs no GPU
# The conversations: python -m toolcall_rl.data sft, see toolcall-rl/README.md. The model is in checkpoints/checkpoint-latest of the run.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/toolcall-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=retool_qwen3_4b_sft MODEL=Qwen3-4B-Instruct-2507
retool_defaults
EXAMPLE_DATA=$ROOT/toolcall-rl/examples/conversations.jsonl
default ACTOR_GPUS 8
default ROLLOUT_GPUS 0
default MAX_TOKENS_PER_GPU 9216
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${RETOOL_SFT[@]}")
run_gpu "$@"
