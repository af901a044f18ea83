# shellcheck shell=bash
# Sourced by gpu.sh: a Ray over several machines, started by the same script on each of them.
#   NNODES                      machines
#   NODE_RANK                   which one this is, 0 the first; also SLURM_NODEID, MLP_ROLE_INDEX
#   MASTER_ADDR                 address of the first; also MLP_WORKER_0_HOST
#   RAY_PORT (6379)             port of its Ray, JOIN_TIMEOUT (600) seconds that machines have to come
# The first starts Ray's head, waits for the others and runs the driver; the others give their GPUs until it ends.
# Ray asks every connection for a token: set RAY_AUTH_TOKEN to the same secret on all machines.
# Everything that is started is a child of the script and ends with it; no other Ray is touched.

node_rank() { echo "${NODE_RANK:-${SLURM_NODEID:-${MLP_ROLE_INDEX:-0}}}"; }

master_addr() { echo "${MASTER_ADDR:-${MLP_WORKER_0_HOST:-}}"; }

joins_cluster() { [ "$NNODES" != 1 ] && [ "$(node_rank)" != 0 ]; }

# gpus_here: GPUs that this machine gives to Ray.
gpus_here() {
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c .
  elif command -v nvidia-smi >/dev/null; then
    nvidia-smi -L | grep -c '^GPU'
  else
    echo 0
  fi
}

# start_ray ARG...: `ray start` in the foreground, as a child that ends with this script.
start_ray() {
  RAY_PID='' DRIVER_PID=''
  trap 'stop_children' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  "$VENV/bin/ray" start "$@" --num-gpus "${GPUS_OF_NODE:-$(gpus_here)}" --disable-usage-stats --block &
  RAY_PID=$!
}

stop_children() {
  local pid
  for pid in $DRIVER_PID $RAY_PID; do
    kill -TERM "$pid" 2>/dev/null || :
    wait "$pid" 2>/dev/null || :
  done
}

# run_driver_in_cluster RUN_DIR DRIVER ARG...: as run_driver, and Ray's head ends after it.
run_driver_in_cluster() {
  local run_dir=$1 status=0
  shift
  "$PY" -m slime.supervisor --run-dir "$run_dir" --parent $$ -- "$PY" "$@" &
  DRIVER_PID=$!
  wait "$DRIVER_PID" || status=$?
  return "$status"
}

# check_token: a Ray over several machines needs a token that all of them know.
check_token() {
  export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
  if [ "$RAY_AUTH_MODE" = token ] && [ -z "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ] && [ ! -f "$HOME/.ray/auth_token" ]; then
    die "set RAY_AUTH_TOKEN to the same secret on all machines (or RAY_AUTH_MODE=disabled in a network of your own)"
  fi
}

# follow_head: on every machine but the first.
follow_head() {
  local address status=0
  address=$(master_addr)
  [ -n "$address" ] || die "NNODES=$NNODES: set MASTER_ADDR to the address of the first machine"
  check_token
  wait_for_port "$address" "${RAY_PORT:-6379}"
  start_ray --address "$address:${RAY_PORT:-6379}"
  wait "$RAY_PID" || status=$?
  RAY_PID=''
  return "$status"
}

# lead_cluster: on the first machine; returns when all machines are there, with RAY_ADDRESS set.
lead_cluster() {
  local address
  address=$(master_addr)
  [ -n "$address" ] || die "NNODES=$NNODES: set MASTER_ADDR to the address of this machine that the others can reach"
  [ -z "${RAY_ADDRESS:-}" ] || die "NNODES=$NNODES starts a Ray, and RAY_ADDRESS names one that runs; drop one of them"
  check_token
  start_ray --head --node-ip-address "$address" --port "${RAY_PORT:-6379}" --dashboard-host 127.0.0.1
  export RAY_ADDRESS=$address:${RAY_PORT:-6379}
  wait_for_port "$address" "${RAY_PORT:-6379}"
  # shellcheck disable=SC2153  # set by gpu.sh
  "$PY" -m slime.ray.cluster --address "$RAY_ADDRESS" --nodes "$NNODES" --gpus "$NEEDED_GPUS" --shared "$RUN_DIR" \
    --timeout "${JOIN_TIMEOUT:-600}" || exit 2
}

# wait_for_port HOST PORT: until somebody listens there.
wait_for_port() {
  local until=$((SECONDS + ${JOIN_TIMEOUT:-600}))
  until (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; do
    [ "$SECONDS" -lt "$until" ] || die "nobody listens at $1:$2 after ${JOIN_TIMEOUT:-600} s: is the script running there?"
    sleep 2
  done
}
