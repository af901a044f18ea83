#!/usr/bin/env bash
# Makes the small project in which the commands run. Run in an empty folder.
set -e
mkdir -p app tests src data logs rs/src rs_broken/src jv docs
printf 'from app.orders import total\n' > app/__init__.py
printf 'def total(prices: list[float]) -> float:\n    return sum(prices)\n\n\ndef discount(price: float, percent: float) -> float:\n    return price - price * percent / 100\n' > app/orders.py
printf 'from app.orders import total\n\nresult: str = total([1.0, 2.0])\nprint(undefined_name)\n' > app/mail.py
printf 'import json\nfrom pathlib import Path\n\nprint(json.loads(Path("config.json").read_text())["port"] + 1)\nprint(json.loads(Path("config.json").read_text())["host"])\n' > app/settings.py
printf 'from app.orders import discount, total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n\n\ndef test_failing_card_is_refused():\n    assert discount(100, 0) == 100\n\n\ndef test_error_message_is_shown():\n    assert True\n' > tests/test_orders.py
printf 'from app.orders import discount\n\n\ndef test_discount():\n    assert discount(100, 15) == 80\n' > tests/test_discount.py
printf 'import requests_toolbelt_x\n\n\ndef test_nothing():\n    assert True\n' > tests/test_imports.py
printf '{"name": "shop", "version": "1.2.0", "scripts": {"test": "node --test test.js", "build": "node build.js", "lint": "eslint ."}, "dependencies": {}}\n' > package.json
printf 'const test = require("node:test");\nconst assert = require("node:assert");\ntest("adds", () => assert.equal(1 + 1, 2));\ntest("rejects failed payments with an error", () => assert.throws(() => { throw new Error("declined"); }));\n' > test.js
printf 'const fs = require("fs");\nconst settings = JSON.parse(fs.readFileSync("settings.json"));\nconsole.log(settings);\n' > build.js
printf 'function total(items) {\n  return items.map(i => i.price).reduce((a, b) => a + b);\n}\nconsole.log(total(undefined));\n' > cart.js
printf '#include <stdio.h>\n\nint main(void) {\n    int unused;\n    printf("hello\\n");\n    return 0;\n}\n' > src/main.c
printf '#include <stdio.h>\n\nint main(void) {\n    printf("hello\\n")\n    return 0;\n}\n' > src/broken.c
printf 'int compute(int x);\n\nint main(void) { return compute(3); }\n' > src/link.c
printf '#include <stdlib.h>\n\nint main(void) { int *p = NULL; return *p; }\n' > src/crash.c
printf 'all: hello\n\nhello: src/main.c\n\tcc -o hello src/main.c\n\nbroken: src/broken.c\n\tcc -o broken src/broken.c\n\ndocs: manual.tex\n\tpdflatex manual.tex\n\ntidy:\n\trm -f hello\n\t@echo tidied\n' > Makefile
printf 'date,city,amount\n2026-03-01,Lyon,120.50\n2026-03-01,Porto,80.00\n2026-03-02,Lyon,45.25\n2026-03-03,Graz,310.00\n' > data/sales.csv
printf '{"host": "0.0.0.0", "port": 8000, "debug": false, "retries": 3}\n' > config.json
printf '{"host": "0.0.0.0", "port": 8000,, }\n' > broken.json
printf '{"build": "ok", "errors": [], "failures": 0, "error": null}\n' > report.json
cat > logs/server.log <<'L'
2026-03-02 10:01:11 INFO  started on port 8000
2026-03-02 10:04:52 ERROR payment failed: card declined (order 1182)
2026-03-02 10:05:09 WARN  retrying order 1182
2026-03-02 10:05:10 INFO  order 1182 paid
2026-03-02 11:30:00 ERROR connection refused: mail.example.org:25
2026-03-02 11:31:02 INFO  mail queue flushed
L
cat > logs/build.log <<'L'
[1/3] compiling
[2/3] linking
/usr/bin/ld: cannot find -lpng: No such file or directory
collect2: error: ld returned 1 exit status
make: *** [Makefile:12: app] Error 1
L
printf '#!/bin/bash\nif [ -f config.json ]; then\n  echo found\n' > broken.sh
printf '#!/bin/bash\necho "deploying to staging"\necho "upload: 14 files, 0 failed"\n' > deploy.sh
# shellcheck disable=SC2016  # the variable belongs to the script that is written
printf '#!/bin/bash\nset -u\necho "backing up to $BACKUP_TARGET"\n' > backup.sh
chmod +x broken.sh backup.sh
printf 'public class Main {\n    public static void main(String[] args) {\n        System.out.println("Hello from Java");\n    }\n}\n' > jv/Main.java
printf 'public class Broken {\n    public static void main(String[] args) {\n        int n = "three";\n        System.out.println(m);\n    }\n}\n' > jv/Broken.java
printf 'public class Boom {\n    public static void main(String[] args) {\n        String s = args.length > 5 ? "x" : null;\n        System.out.println(s.length());\n    }\n}\n' > jv/Boom.java
printf '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n' | tee rs/Cargo.toml > rs_broken/Cargo.toml
printf 'fn main() {\n    let unused = 3;\n    println!("hello");\n}\n\n#[test]\nfn failing_input_is_an_error() {\n    assert!("x".parse::<i32>().is_err());\n}\n' > rs/src/main.rs
printf 'fn main() {\n    let s = String::from("a");\n    let t = s;\n    println!("{} {}", s, t);\n    let n: i32 = "5";\n}\n' > rs_broken/src/main.rs
printf '<project xmlns="http://maven.apache.org/POM/4.0.0">\n  <modelVersion>4.0.0</modelVersion>\n  <groupId>org.example</groupId>\n  <artifactId>shop</artifactId>\n  <version>1.0</version>\n</project>\n' > pom.xml
printf 'services:\n  web:\n    image: nginx\n    ports: ["8080:80"]\n' > docker-compose.yml
printf 'TODO: nothing is wrong here\n- fix the error page\n- tests that failed last week pass now\n' > notes.md
printf 'resource "local_file" "a" {\n  content = "x"\n  filename = \n}\n' > main.tf
printf 'from pathlib import Path\n\nfor name in sorted(Path("data").iterdir()):\n    print(name, name.stat().st_size)\nPath("out.txt").write_text("done")\n' > list_files.py
sqlite3 shop.db 'create table orders(id integer primary key, city text not null, amount real); insert into orders values (1, "Lyon", 120.5), (2, "Porto", 80.0);'
printf 'target/\n' > .gitignore
git init -q -b main . && git config user.name Sam && git config user.email sam@example.org
printf '# Shop\n\nA small shop.\n' > README.md
git add -A && git commit -qm 'start of the shop'
printf 'wip\n' > docs/error_codes.md && git add -A && git commit -qm 'fix error when the cart is empty'
git checkout -qb feature && printf '# Shop\n\nA very large shop.\n' > README.md && git commit -qam 'broken links in the readme corrected'
git checkout -q main && printf '# Shop\n\nA small shop in Lyon.\n' > README.md && git commit -qam 'name the city, failed build repaired'
tar czf files.tar.gz data && zip -qr files.zip data logs && head -c 100 files.zip > half.zip && head -c 60 files.tar.gz > half.tar.gz
