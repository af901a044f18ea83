#!/bin/bash
set -eu
cat > /app/sizes <<'END'
#!/bin/bash
export LC_ALL=C
shopt -s nullglob dotglob
total=0
for file in "$1"/*; do
  [ -f "$file" ] || continue
  size=$(wc -c < "$file")
  echo "$size ${file##*/}"
  total=$((total + size))
done
echo "total $total"
END
