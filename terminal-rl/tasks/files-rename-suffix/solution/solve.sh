#!/bin/bash
set -eu
cd /app/notes
for file in *.txt; do
  if [ -f "$file" ]; then mv -- "$file" "${file%.txt}.md"; fi
done
