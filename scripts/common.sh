# Sourced by the scripts beside it: `run NAME paleo ...` keeps an answer of Paleo as JSON, `beside`
# shows the answers beside published figures and writes results/EXPERIMENT.md and .csv.
#
# RESULTS is the folder to write to, PYTHON the interpreter to use. Without one it is that of the
# `paleo` on the PATH, else that of the repository's .venv, else python3. What runs is always the
# Paleo of this checkout.
set -euo pipefail

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$scripts")
experiment=$(basename "$0" .sh)
if [ $# -gt 0 ]; then
  echo "usage: $experiment.sh, without arguments; RESULTS=FOLDER says where to write" >&2
  exit 2
fi
RESULTS=${RESULTS:-$root/results}
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

find_python() {
  local installed each candidates
  installed=$(command -v paleo || true)
  candidates=("${installed:+$(sed -n '1s/^#! *\(.*python[^ ]*\)$/\1/p' "$installed")}" \
    "$root/.venv/bin/python" python3)
  if [ -n "${PYTHON:-}" ]; then
    candidates=("$PYTHON")
  fi
  for each in "${candidates[@]}"; do
    if [ -n "$each" ] && "$each" -c 'import click, numpy, six, sys
sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$each"
      return
    fi
  done
  echo "$experiment.sh: no Python 3.11 with Paleo's requirements found; see Start in README.md" >&2
  return 1
}

PYTHON=$(find_python)
export PYTHON
commands=""

# run NAME paleo COMMAND ...: shows the command on standard error, keeps its JSON as NAME.json.
run() {
  local file=$RESULTS/$experiment/$1.json line="$" word
  shift
  for word in "$@"; do
    case $word in
      *[!A-Za-z0-9_./:=,%@+-]*) word="'$word'" ;;
    esac
    line="$line $word"
  done
  echo "$line" >&2
  commands+=$line$'\n'
  mkdir -p "$RESULTS/$experiment"
  if ! "$PYTHON" -m "$@" --format=json >"$file.part"; then
    rm "$file.part"
    return 1
  fi
  mv "$file.part" "$file"
}

beside() {
  printf %s "$commands" >"$RESULTS/$experiment/commands"
  "$PYTHON" "$scripts/beside.py" "$experiment" "$RESULTS"
}
