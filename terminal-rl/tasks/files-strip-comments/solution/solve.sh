#!/bin/bash
set -eu
cd /app && grep -Ev '^[[:space:]]*(#|$)' main.conf > clean.conf
