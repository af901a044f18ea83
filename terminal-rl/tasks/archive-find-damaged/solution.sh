#!/bin/bash
set -eu
cd /app
while read -r sum name; do
  if [ ! -e "$name" ]; then
    echo "missing $name"
  elif [ "$(sha256sum < "$name" | cut -d' ' -f1)" != "$sum" ]; then
    echo "damaged $name"
  fi
done < SHA256SUMS | LC_ALL=C sort > report.txt
