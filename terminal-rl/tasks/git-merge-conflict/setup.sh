#!/bin/bash
set -eu
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
export GIT_AUTHOR_DATE='2024-03-01T10:00:00Z' GIT_COMMITTER_DATE='2024-03-01T10:00:00Z'

git init -q -b main /app/repo
cd /app/repo
printf 'apples\nmilk\n' > list.txt
git add list.txt
git commit -q -m 'Begin the list'
git checkout -q -b feature
printf 'apples\ncheese\nmilk\n' > list.txt
git commit -qa -m 'Add cheese'
git checkout -q main
printf 'apples\nbread\nmilk\n' > list.txt
git commit -qa -m 'Add bread'
