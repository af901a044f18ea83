#!/bin/bash
set -eu
python3 - <<'END'
import sqlite3

shop = sqlite3.connect("/app/shop.db")
shop.execute("ALTER TABLE orders ADD COLUMN euros REAL")
shop.execute("DELETE FROM orders WHERE state = 'void'")
shop.execute("UPDATE orders SET euros = cents / 100.0")
shop.execute("CREATE INDEX orders_by_customer ON orders (customer)")
shop.commit()
END
