#!/usr/bin/env bash
# tiny-claw learns through a real local server of Tinker's protocol: skyrl 0.4.0 with its JAX backend, on a CPU.
#   bash tests/long/run_tinker.sh [METHOD] [FOLDER]     default: rl, a temporary folder; any method of openclaw-tinker/run.py
# Installs the server (1.2 GB, Python 3.12, no torch) into FOLDER/server once, and this SDK into FOLDER/sdk; needs uv's download of nothing
# else. Prints the demo's result, and the largest distance of trainer and sampler. Takes about a quarter of an hour on two free cores.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
METHOD=${1:-rl}
FOLDER=${2:-$(mktemp -d)}
MODEL=$ROOT/openclaw-test/tiny_claw/model
# shellcheck source=../../launch/env.sh
source "$ROOT/launch/env.sh"
VENV=${VENV:-$ROOT/.venv} PY=${PY:-${VENV:-$ROOT/.venv}/bin/python}
set_python_path
mkdir -p "$FOLDER"
FOLDER=$(cd "$FOLDER" && pwd)

# skyrl asks for torch and peft, of which the JAX backend uses one class to write a description.
install_server() {
  local python=${PYTHON312:-python3.12}
  "$python" -m venv "$FOLDER/server"
  "$FOLDER/server/bin/pip" install --quiet uv
  printf '%s\n' 'torch ; sys_platform == "never"' 'peft ; sys_platform == "never"' 'tinker==0.25.0' >"$FOLDER/overrides.txt"
  VIRTUAL_ENV=$FOLDER/server "$FOLDER/server/bin/uv" pip install --quiet --override "$FOLDER/overrides.txt" \
    "skyrl[tinker]==0.4.0" "jax>=0.8,<1" "flax>=0.12.10" optax aiohttp
  mkdir -p "$FOLDER/stubs/torch" "$FOLDER/stubs/peft"
  : >"$FOLDER/stubs/torch/__init__.py"
  cat >"$FOLDER/stubs/peft/__init__.py" <<'PEFT'
import json
import os


class LoraConfig:
    def __init__(self, **values):
        self.values = values

    def save_pretrained(self, folder):
        with open(os.path.join(folder, "adapter_config.json"), "w") as file:
            json.dump({"peft_type": "LORA", **self.values}, file)
PEFT
  : >"$FOLDER/installed"
}

free_port() { "$PY" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

[ -e "$FOLDER/installed" ] || install_server
if ! "$PY" -c 'import tinker' 2>/dev/null; then
  [ -d "$FOLDER/sdk" ] || "$PY" -m pip install --quiet --no-deps --target "$FOLDER/sdk" tinker==0.25.0 pyqwest h2 hpack hyperframe distro sniffio zstandard
  export PYTHONPATH="$PYTHONPATH:$FOLDER/sdk"
fi

STATE=$(mktemp -d "$FOLDER/run-XXXXXX")
SERVER_PORT=$(free_port) PORT=$(free_port) SERVER='' RUN=''
# shellcheck disable=SC2329 # called by the trap
stop() {
  local pid
  for pid in $RUN $SERVER; do kill -TERM -- "-$pid" 2>/dev/null || :; wait "$pid" 2>/dev/null || :; done
}
trap stop EXIT
set -m # each in a group of its own, with all of its children
(
  cd "$STATE" && export VIRTUAL_ENV=$FOLDER/server PATH=$FOLDER/server/bin:$PATH PYTHONPATH=$FOLDER/stubs JAX_PLATFORMS=cpu HF_HUB_OFFLINE=1
  exec uv run --no-project --active --offline --no-config -m skyrl.tinker.api --base-model "$MODEL" --backend jax --host 127.0.0.1 \
    --port "$SERVER_PORT" --checkpoints-base "$STATE/kept" --database-url "sqlite:///$STATE/tinker.db" \
    --backend-config '{"max_lora_adapters":32,"max_lora_rank":8,"train_micro_batch_size":4,"sample_max_num_sequences":4}'
) >"$STATE/server.log" 2>&1 &
SERVER=$!

export TINKER_API_KEY=tml-local TINKER_BASE_URL=http://127.0.0.1:$SERVER_PORT TINKER_LOSS_REDUCTION=mean
"$PY" "$ROOT/openclaw-tinker/run.py" --method "$METHOD" --model-name "$MODEL" --model-path "$MODEL" --lora-rank 8 \
  --learning-rate "${LEARNING_RATE:-3e-3}" --kl-loss-coef "${KL_LOSS_COEF:-0.05}" --save-interval 1 --judge-backend rules \
  --proxy-host 127.0.0.1 --proxy-port "$PORT" --record-dir "$STATE/run" --adam-beta2 0.98 >"$STATE/run.log" 2>&1 &
RUN=$!
set +m
status=0
"$PY" "$ROOT/openclaw-test/openclaw_test/loop/demo.py" --url "http://127.0.0.1:$PORT" --log "$STATE/run.log" --pid "$RUN" \
  --seconds "${DEMO_SECONDS:-600}" --problems 100 --target 0.8 || status=$?
"$PY" - "$STATE/run/metrics.jsonl" <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
gaps = [row["train/train_rollout_logprob_abs_diff"] for row in rows if "train/train_rollout_logprob_abs_diff" in row]
print(f"{len(rows)} steps; trainer against sampler, mean of a step at most {max(gaps, default=float('nan')):.2g} nats")
P
exit "$status"
