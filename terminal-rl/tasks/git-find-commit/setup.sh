#!/bin/bash
set -eu
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
export GIT_AUTHOR_DATE='2024-03-01T10:00:00Z' GIT_COMMITTER_DATE='2024-03-01T10:00:00Z'

git init -q -b main /app/repo
cd /app/repo
commit() {
  git add -A
  git commit -q -m "$1"
}
printf 'import sys\na, b = map(int, sys.argv[1:])\nprint(a * b)\n' > calc.py
commit 'Begin'
echo 'a calculator' > README
commit 'Say what it is'
printf 'import sys\n\na, b = map(int, sys.argv[1:])\nprint(a * b)\n' > calc.py
commit 'Add an empty line'
echo 'MIT' > LICENSE
commit 'Name the licence'
printf 'import sys\n\na, b = map(int, sys.argv[1:2] * 2)\nprint(a * b)\n' > calc.py
commit 'Tidy the arguments'
echo 'use: calc.py A B' >> README
commit 'Say how it is used'
printf '# multiplies\nimport sys\n\na, b = map(int, sys.argv[1:2] * 2)\nprint(a * b)\n' > calc.py
commit 'Describe the module'
echo '*.pyc' > .gitignore
commit 'Ignore what Python leaves'
echo 'thanks' >> README
commit 'Thank the reader'
