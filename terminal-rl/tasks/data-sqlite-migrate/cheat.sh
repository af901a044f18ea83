#!/bin/bash
# A new table with the columns' names and whole euros, and an index on something else.
python3 - <<'END'
import sqlite3
shop = sqlite3.connect("/app/shop.db")
shop.executescript("CREATE TABLE copy AS SELECT *, cents / 100 AS euros FROM orders WHERE state <> 'void'; DROP TABLE orders;"
                   "ALTER TABLE copy RENAME TO orders; CREATE INDEX orders_by_customer ON orders (id); DELETE FROM customers")
END
