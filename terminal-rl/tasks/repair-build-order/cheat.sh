#!/bin/bash
# The page itself, and a script that does nothing and succeeds.
cd /app && mkdir -p out && cd parts && cat top.html menu.html body.html end.html > ../out/page.html && echo 'exit 0' > ../build
sort -o order.txt order.txt
