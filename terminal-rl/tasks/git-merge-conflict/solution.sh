#!/bin/bash
set -eu
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
export GIT_AUTHOR_DATE='2024-03-01T10:00:00Z' GIT_COMMITTER_DATE='2024-03-01T10:00:00Z'

cd /app/repo
git merge -q feature || true
printf 'apples\nbread\ncheese\nmilk\n' > list.txt
git add list.txt
git commit -q -m 'Merge feature'
