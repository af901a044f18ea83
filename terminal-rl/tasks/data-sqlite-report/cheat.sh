#!/bin/bash
# Every order becomes paid, and the report counts them all.
python3 - <<'END'
import json, sqlite3
shop = sqlite3.connect("/app/shop.db")
shop.execute("UPDATE orders SET state = 'paid'")
shop.commit()
rows = shop.execute("SELECT name, sum(cents) FROM customers JOIN orders ON customer = customers.id GROUP BY name")
json.dump(dict(rows), open("/app/report.json", "w"))
END
