# shellcheck shell=bash
# Sourced: a real local server of Tinker's protocol, skyrl 0.4.0 with its JAX backend, on a CPU, and what speaks to it. A script sets ROOT and FOLDER, then
#   prepare_tinker            installs the server (1.2 GB, Python 3.12, no torch) into FOLDER/server and the SDK into FOLDER/sdk, each once; sets PY, MODEL, STATE
#   start_server              serves tiny-claw on SERVER_PORT; SERVER is its process group. What it keeps lies in STATE and outlives it
#   start_run METHOD [FLAG..] this project at that server on PORT, rules judge; RUN is its process group. Waits until it serves
#   stop SIGNAL PID           ends a group and waits for it
# Programs that were compiled for a shape of request stay in FOLDER/compiled, so that a second run waits for none of them.

prepare_tinker() {
  # shellcheck source=../../../launch/env.sh
  source "$ROOT/launch/env.sh"
  VENV=${VENV:-$ROOT/.venv} PY=${PY:-${VENV:-$ROOT/.venv}/bin/python}
  set_python_path
  MODEL=$ROOT/openclaw-test/tiny_claw/model
  mkdir -p "$FOLDER"
  FOLDER=$(cd "$FOLDER" && pwd)
  [ -e "$FOLDER/installed" ] || install_server
  if ! "$PY" -c 'import tinker' 2>/dev/null; then
    [ -d "$FOLDER/sdk" ] || "$PY" -m pip install --quiet --no-deps --target "$FOLDER/sdk" tinker==0.25.0 pyqwest h2 hpack hyperframe distro sniffio zstandard
    export PYTHONPATH="$PYTHONPATH:$FOLDER/sdk"
  fi
  STATE=$(mktemp -d "$FOLDER/run-XXXXXX")
  SERVER_PORT=$(free_port) PORT=$(free_port) SERVER='' RUN=''
  export TINKER_API_KEY=tml-local TINKER_BASE_URL=http://127.0.0.1:$SERVER_PORT TINKER_LOSS_REDUCTION=mean
}

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

start_server() {
  set -m # a group of its own, with all of its children
  (
    cd "$STATE" && export VIRTUAL_ENV=$FOLDER/server PATH=$FOLDER/server/bin:$PATH PYTHONPATH=$FOLDER/stubs JAX_PLATFORMS=cpu HF_HUB_OFFLINE=1
    export JAX_COMPILATION_CACHE_DIR=$FOLDER/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2
    exec uv run --no-project --active --offline --no-config -m skyrl.tinker.api --base-model "$MODEL" --backend jax --host 127.0.0.1 \
      --port "$SERVER_PORT" --checkpoints-base "$STATE/kept" --database-url "sqlite:///$STATE/tinker.db" \
      --backend-config '{"max_lora_adapters":32,"max_lora_rank":8,"train_micro_batch_size":1,"sample_max_num_sequences":4}'
  ) >>"$STATE/server.log" 2>&1 &
  # shellcheck disable=SC2034 # read by the scripts
  SERVER=$!
  set +m
}

start_run() {
  local method=$1
  shift
  set -m
  "$PY" "$ROOT/openclaw-tinker/run.py" --method "$method" --model-name "$MODEL" --model-path "$MODEL" --lora-rank 8 \
    --learning-rate "${LEARNING_RATE:-3e-3}" --kl-loss-coef "${KL_LOSS_COEF:-0.05}" --save-interval 1 --judge-backend rules \
    --proxy-host 127.0.0.1 --proxy-port "$PORT" --record-dir "$STATE/run" --adam-beta2 0.98 --catch-up-batch-size 16 "$@" >"$STATE/run.log" 2>&1 &
  RUN=$!
  set +m
  "$PY" - "http://127.0.0.1:$PORT/readyz" "$RUN" <<'P'
import os, sys, time, urllib.request
deadline = time.monotonic() + 900
while time.monotonic() < deadline:
    os.kill(int(sys.argv[2]), 0)
    try:
        urllib.request.urlopen(sys.argv[1], timeout=10)
        sys.exit(0)
    except OSError:
        time.sleep(1)
sys.exit("the run was not ready after 900 s")
P
}

stop() {
  [ -n "$2" ] || return 0
  kill "-$1" -- "-$2" 2>/dev/null || :
  wait "$2" 2>/dev/null || :
}
