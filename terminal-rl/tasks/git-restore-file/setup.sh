#!/bin/bash
set -eu
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
export GIT_AUTHOR_DATE='2024-03-01T10:00:00Z' GIT_COMMITTER_DATE='2024-03-01T10:00:00Z'

git init -q -b main /app/repo
cd /app/repo
printf 'one\ntwo\n' > guide.txt
echo 'readme' > README
git add -A
git commit -q -m 'Begin'
printf 'one\ntwo\nthree\n' > guide.txt
git commit -qa -m 'Add a step'
git rm -q guide.txt
git commit -q -m 'Delete the guide'
echo 'a note' > notes.txt
git add -A
git commit -q -m 'Add notes'
