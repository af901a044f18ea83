#!/bin/bash
set -eu
cat > /app/build <<'END'
#!/bin/bash
set -eu
cd "$(dirname "$0")"
mkdir -p out
: > out/page.html
while read -r part; do
  cat "parts/$part.html" >> out/page.html
done < parts/order.txt
END
