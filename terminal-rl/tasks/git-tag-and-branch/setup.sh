#!/bin/bash
set -eu
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
export GIT_AUTHOR_DATE='2024-03-01T10:00:00Z' GIT_COMMITTER_DATE='2024-03-01T10:00:00Z'

git init -q -b main /app/repo
cd /app/repo
for message in 'Begin' 'Prepare Release 1.0' 'Release 1.0' 'Release 1.0 is out' 'Go on'; do
  echo "$message" >> log.txt
  git add -A
  git commit -q -m "$message"
done
