#!/bin/bash
set -eu
awk -F'" ' '{split($2, part, " "); count[part[1]]++} END {for (code in count) print code, count[code]}' /app/access.log | sort > /app/counts.txt
