# shellcheck shell=bash
# Sourced by launch scripts and by run_tests.sh: finds Python, creates the virtual environment once, sets PYTHONPATH.
# Variables: ROOT (repository, set by the caller), PYTHON (interpreter to build the environment with),
# VENV (its folder, default ROOT/.venv), TORCH_INDEX_URL (package index to take torch from).

die() { printf 'error: %s\n' "$*" >&2; exit 2; }

find_python() {
  local candidate
  if [ -n "$FOUND_PYTHON" ]; then echo "$FOUND_PYTHON" && return; fi
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3 python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11, 3.12 or 3.13 with venv was found$(python_here); $(python_advice), or set PYTHON=/path/to/python"
}

# version_of PYTHON: prints its version, such as 3.10; nothing if it cannot be run.
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || :; }

python_here() {
  local version
  version=$(version_of python3)
  echo "${version:+ (python3 here is $version)}"
}

# python_advice: prints the packages to install for a Python, including Python.h, which engines need to compile.
python_advice() {
  local candidate version packages="python3.11 python3.11-venv python3.11-dev"
  for candidate in python3.11 python3.12 python3.13 python3; do
    version=$(version_of "$candidate")
    case $version in 3.11 | 3.12 | 3.13) packages="python$version-venv python$version-dev" && break ;; esac
  done
  echo "apt-get install $packages (python3-venv is for the system's python3 alone, which is 3.10 on Ubuntu 22.04);" \
    "without apt: conda create -n claw python=3.12, or uv python install 3.12"
}

# A start of a fresh clone needs it about ten times, in subshells, which cannot keep the answer.
FOUND_PYTHON=''
[ -x "${VENV:-$ROOT/.venv}/bin/python" ] || FOUND_PYTHON=$(find_python 2>/dev/null) || :

# ensure_env REQUIREMENTS...: installs the files once, in this order; a stamp per file records the installed content.
ensure_env() {
  check_package
  VENV=${VENV:-$ROOT/.venv}
  PY=$VENV/bin/python
  if ! is_installed "$@"; then
    [ -x "$PY" ] || find_python >/dev/null
    mkdir -p "$VENV"
    install_env "$@" 9<"$VENV"
  fi
  export PATH="$VENV/bin:$PATH"
  set_python_path
  go_past_proxies
}

is_installed() {
  [ -x "$PY" ] && [ "$(cat "$(stamp_of "${!#}")" 2>/dev/null)" = "$(content_of "$@")" ]
}

# install_env REQUIREMENTS...: installs those that are not installed, while holding the lock of the folder VENV (descriptor 9);
# other starts wait for it.
install_env() {
  local number status=0
  lock_folder now || status=$?
  if [ "$status" = "$HELD" ]; then
    echo "another start is setting up $VENV: waiting until it is done" >&2
    lock_folder wait || :
  fi
  if ! is_installed "$1"; then
    make_venv
    install_torch
    install_file "about 200 MB; a minute or two" "$1"
    pip_install --no-deps -e "$ROOT/slime"
    content_of "$1" >"$(stamp_of "$1")"
  fi
  for ((number = 2; number <= $#; number++)); do
    if is_installed "${@:1:number}"; then continue; fi
    install_file "less than a minute" "${!number}"
    content_of "${@:1:number}" >"$(stamp_of "${!number}")"
  done
}

install_file() {
  echo "installing the packages of $(basename "$2") ($1)" >&2
  install_locked trainer "$2"
}

# install_locked NAME REQUIREMENTS: installs the locked versions. If one of them cannot be installed here, for example on an old
# system, pip chooses the versions.
install_locked() {
  local words
  words=$(locked "$1")
  # shellcheck disable=SC2086  # two words, or none
  [ -z "$words" ] || ! pip_install $words -r "$2" || return 0
  if [ -n "$words" ]; then echo "the locked versions cannot be installed here: installing the newest that $(basename "$2") allows" >&2; fi
  pip_install -r "$2"
}

# locked NAME: prints pip's arguments for the versions in instructions/locks/NAME.txt on Linux, x86-64, Python 3.12; nothing
# elsewhere. They constrain versions, and add no packages.
locked() {
  [ "$(uname -sm)" = "Linux x86_64" ] && [ "$(version_of "$PY")" = 3.12 ] || return 0
  echo "--constraint $ROOT/instructions/locks/$1.txt"
}

HELD=75
# lock_folder now|wait: locks descriptor 9 until this shell closes it. macOS has no flock program. A file system without locks
# does not prevent a start.
lock_folder() {
  local python=$PY
  [ -x "$python" ] || python=$(find_python)
  "$python" -c '
import fcntl, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
try: fcntl.flock(9, fcntl.LOCK_EX | (fcntl.LOCK_NB if sys.argv[1] == "now" else 0))
except BlockingIOError: sys.exit(int(sys.argv[2]))
except OSError: pass' "$1" "$HELD"
}

# stamp_of FILE: prints the path of its stamp, which contains the folder, because several folders have a requirements.txt.
stamp_of() {
  local name=${1#"$ROOT/"}
  name=${name%.txt}
  echo "$VENV/.installed-${name//\//-}"
}

content_of() { cat "$@" "$ROOT/slime/pyproject.toml" | cksum; }

# make_venv: creates an environment with pip in VENV. An incomplete one has a mark file and is created again.
make_venv() {
  local python unfinished=$VENV/.unfinished
  if [ -x "$PY" ] && [ ! -e "$unfinished" ] && "$PY" -c 'import pip' 2>/dev/null; then return; fi
  if [ -e "$VENV" ] && [ ! -e "$unfinished" ] && [ -n "$(ls -A "$VENV")" ]; then
    die "$VENV is not a Python environment with pip: delete it, and it is created again; or set VENV to another folder"
  fi
  python=$(find_python)
  echo "setting up $VENV (once; takes one to a few minutes)" >&2
  mkdir -p "$VENV"
  : >"$unfinished"
  "$python" -m venv "$VENV"
  rm "$unfinished"
}

# pip_install ARG...: runs pip; on a terminal, one line shows the current package. Modules are compiled when they are first
# imported, because compiling all modules of torch and transformers takes as long as downloading them.
pip_install() {
  local status=0
  if [ -t 2 ]; then
    "$PY" -m pip install --no-compile --disable-pip-version-check --progress-bar off "$@" | while IFS= read -r line; do
      case $line in *Collecting* | *Downloading* | *Building* | Installing*) printf '\r\033[K  %.70s' "$line" >&2 ;; esac
    done || status=$?
    printf '\r\033[K' >&2
    return "$status"
  else
    "$PY" -m pip install --no-compile --disable-pip-version-check --quiet "$@"
  fi
}

# check_package: exits if RUN_DIR or VENV would be in a copy of the repository that Ray deletes after the job (ray job submit
# --working-dir).
check_package() {
  case $ROOT in */working_dir_files/_ray_pkg_*) ;; *) return 0 ;; esac
  case ${RUN_DIR:-$ROOT/runs} in
    "$ROOT"/* | [!/]*) die "this is Ray's copy of the repository, which it deletes after the job: set RUN_DIR (and SAVE_CKPT)" \
      "to a folder that stays, for example: ray job submit --working-dir . -- env RUN_DIR=/data/run VENV=/opt/trainer bash ..." ;;
  esac
  [ -n "${VENV:-}" ] || die "this is Ray's copy of the repository, which it deletes after the job: set VENV to an environment" \
    "with requirements.txt on the cluster's machines, else every job would install one"
}

# go_past_proxies: excludes this machine and the master of several nodes from proxies, for all programs.
go_past_proxies() {
  local hosts="127.0.0.1,localhost,::1${MASTER_ADDR:+,$MASTER_ADDR}"
  case ",${no_proxy:-},|,${NO_PROXY:-}," in *",$hosts,"*"|"*",$hosts,"*) return 0 ;; esac
  export no_proxy="${no_proxy:+$no_proxy,}$hosts" NO_PROXY="${NO_PROXY:+$NO_PROXY,}$hosts"
}

set_python_path() {
  local ours="$ROOT:$ROOT/base:$ROOT/slime:$ROOT/openclaw-rl:$ROOT/openclaw-opd:$ROOT/openclaw-combine:$ROOT/toolcall-rl:$ROOT/terminal-rl:$ROOT/swe-rl:$ROOT/gui-rl:$ROOT/openclaw-tinker:$ROOT/openclaw-fireworks:$ROOT/launch:$ROOT/openclaw-test:$ROOT/lab"
  case ${PYTHONPATH:-}: in "$ours":*) return 0 ;; esac
  export PYTHONPATH="$ours${PYTHONPATH:+:$PYTHONPATH}"
}

# has_module NAME: whether PY finds it; its package is checked first.
has_module() {
  "$PY" -c 'import sys; from importlib.util import find_spec
name = sys.argv[1]; sys.exit(not (find_spec(name.partition(".")[0]) and find_spec(name)))' "$1"
}

# ensure_for WORD...: installs further packages that these driver arguments need.
ensure_for() {
  local words=" ${*//=/ } "
  case $words in *" --train-backend megatron "*) ensure_megatron ;; esac
  case $words in *" --use-wandb "* | *" --wandb-project "*) ensure_tracker wandb ;; esac
  case $words in *" --use-trackio "*) ensure_tracker trackio ;; esac
}

# ensure_tracker PACKAGE: installs the newest version that is compatible with the pinned requirements.
ensure_tracker() {
  has_module "$1" && return
  echo "installing $1 for --use-$1 (once)" >&2
  # shellcheck disable=SC2046  # two words, or none
  pip_install $(locked trainer) "$1" -r "$ROOT/requirements.txt" \
    || die "--use-$1 needs the package $1, which could not be installed: $PY -m pip install $1; or remove --use-$1 (USE_WANDB=0)"
}

# Installs the only package that --train-backend megatron needs; it has no dependencies.
ensure_megatron() {
  local pin
  has_module megatron.core && return
  pin=$(grep '^megatron-core==' "$ROOT/requirements-dev.txt")
  echo "installing $pin (once)" >&2
  pip_install --no-deps "$pin"
}

# torch is installed first and separately, so that an installed CPU build, or the one of TORCH_INDEX_URL, is kept.
install_torch() {
  local pin size='several gigabytes with CUDA; for CPUs alone: TORCH_INDEX_URL'
  pin=$(grep '^torch==' "$ROOT/requirements.txt")
  if [ -n "${TORCH_INDEX_URL:-}" ]; then
    echo "installing $pin from $TORCH_INDEX_URL" >&2
    pip_install --index-url "$TORCH_INDEX_URL" "$pin"
  else
    [ "$(uname)" = Linux ] || size='about 100 MB'
    [ -n "$(ls -d "$VENV"/lib/python3*/site-packages/torch 2>/dev/null)" ] || echo "installing $pin ($size)" >&2
    pip_install "$pin"
  fi
}
