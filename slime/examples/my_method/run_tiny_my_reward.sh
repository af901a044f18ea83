#!/usr/bin/env bash
# A reward model in place of a rule, on the CPU: the arithmetic example judged by custom_rm.py.
#   bash slime/examples/my_method/run_tiny_my_reward.sh [any flag of slime/train_async.py]
# Variables: PRM_MODEL_PATH (default: a classifier that reward_model.py trains in a minute), RUN_DIR, PYTHON, MODEL_PATH.
set -euo pipefail
METHOD=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RUN_DIR=${RUN_DIR:-runs/arithmetic}
export PRM_MODEL_PATH=${PRM_MODEL_PATH:-$RUN_DIR/reward_model}
[ -f "$PRM_MODEL_PATH/config.json" ] || "${PYTHON:-python}" "$METHOD/reward_model.py" "$PRM_MODEL_PATH"
NAME=my_reward RM=model bash "$METHOD/../arithmetic/grpo.sh" \
  --custom-rm-path "$METHOD/custom_rm.py" --num-rollout 30 "$@"
