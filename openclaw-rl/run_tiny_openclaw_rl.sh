#!/usr/bin/env bash
# Binary RL on a laptop: serves the tiny model on http://127.0.0.1:30000/v1 and trains it while you talk to it.
#   bash openclaw-rl/run_tiny_openclaw_rl.sh          until Ctrl-C
#   bash openclaw-rl/run_tiny_openclaw_rl.sh --demo   a scripted user talks to it until it has learned; prints the result
# Any other flag goes to the driver: see python slime/train_async.py --help, and README.md for the variables.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../slime/scripts/launch.sh
source "$ROOT/slime/scripts/launch.sh"

demo=0
driver_flags=()
for flag in "$@"; do
  case $flag in
    --demo) demo=1 ;;
    -h | --help) sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) driver_flags+=("$flag") ;;
  esac
done

ensure_env "$ROOT/requirements.txt"

HOST=${HOST:-127.0.0.1}
PORT=${PORT:-30000}
MODEL_PATH=${MODEL_PATH:-${HF_CKPT:-$ROOT/openclaw-test/tiny_claw/model}}
if [ "$demo" = 1 ]; then
  RUN_DIR=${RUN_DIR:-$ROOT/runs/demo-$(date +%Y%m%d-%H%M%S)}
else
  RUN_DIR=${RUN_DIR:-$ROOT/runs/tiny_openclaw_rl}
fi
[ -f "$MODEL_PATH/config.json" ] || die "MODEL_PATH=$MODEL_PATH holds no config.json; give the folder of a Hugging Face model"
check_port "$HOST" "$PORT" "$RUN_DIR"
mkdir -p "$RUN_DIR"
RUN_DIR=$(cd "$RUN_DIR" && pwd)

model=(--hf-checkpoint "$MODEL_PATH" --train-backend fsdp --backend embedded)
checkpoints=(--run-dir "$RUN_DIR" --save "${SAVE_CKPT:-${CKPT_SAVE_DIR:-$RUN_DIR/checkpoints}}" --save-interval 1)
rollout=(
  --disable-rollout-global-dataset
  --rollout-function-path openclaw_rollout.generate_rollout_openclaw
  --on-weights-live-path openclaw_rollout.on_weights_live
  --service-path openclaw.services.start
  --rollout-batch-size 4 --reward-key score
  --rl-buffer-dir "$RUN_DIR/buffer" --batch-timeout 30
)
serving=(--host "$HOST" --port "$PORT" --served-model-name "${SERVED_MODEL_NAME:-tiny-claw}")
judge=(--judge-backend "${JUDGE_BACKEND:-rules}" --num-judge-workers 1 --method-path binary_rl:sample_from_judged_turn)
training=(--advantage-estimator grpo --disable-rewards-normalization --eps-clip 0.2 --eps-clip-high 0.28)
kl=(--use-kl-loss --kl-loss-coef 0.05 --kl-loss-type low_var_kl) # keeps what the model could do before
optimizer=(--lr 5e-4 --weight-decay 0.0 --adam-beta1 0.9 --adam-beta2 0.98)

arguments=("${model[@]}" "${checkpoints[@]}" "${rollout[@]}" "${serving[@]}" "${judge[@]}" "${training[@]}" "${kl[@]}" "${optimizer[@]}")
# shellcheck disable=SC2206  # exported strings, split into words on purpose; what comes last wins
arguments+=(${CKPT_ARGS:-} ${ROLLOUT_ARGS:-} ${OPTIMIZER_ARGS:-} ${LORA_ARGS:-} ${driver_flags[@]+"${driver_flags[@]}"})

if [ -n "${DATA_PATH:-}" ]; then
  "$PY" -m openclaw.store import-conversations "$DATA_PATH" --model-path "$MODEL_PATH" --rl-buffer-dir "$RUN_DIR/buffer"
fi

if [ "$demo" = 1 ]; then
  case $HOST in 0.0.0.0 | ::) url=http://127.0.0.1:$PORT ;; *:*) url=http://[$HOST]:$PORT ;; *) url=http://$HOST:$PORT ;; esac
  # shellcheck disable=SC2034  # read by run_driver_beside
  CLIENT=("$PY" "$ROOT/openclaw-test/demo.py" --url "$url" --log "$RUN_DIR/driver.out" --pid)
  run_driver_beside "$RUN_DIR" "$ROOT/slime/train_async.py" "${arguments[@]}"
else
  run_driver "$RUN_DIR" "$ROOT/slime/train_async.py" "${arguments[@]}"
fi
