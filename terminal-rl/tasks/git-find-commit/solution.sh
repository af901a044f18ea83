#!/bin/bash
set -eu
cd /app/repo
for commit in $(git rev-list --reverse main); do
  git show "$commit:calc.py" > /tmp/calc.py
  if [ "$(python3 /tmp/calc.py 6 7 2>&1)" != 42 ]; then
    echo "$commit" > /app/answer.txt
    break
  fi
done
