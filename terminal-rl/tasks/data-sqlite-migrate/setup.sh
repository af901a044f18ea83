#!/bin/bash
set -eu
python3 - <<'END'
import sqlite3

shop = sqlite3.connect("/app/shop.db")
shop.executescript("""
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id), cents INTEGER, state TEXT);
""")
names = ["Ada", "Bob", "Carl", "Dan", "Eve", "Finn"]
shop.executemany("INSERT INTO customers VALUES (?, ?)", enumerate(names, 1))
orders = [(n, 1 + n * 7 % 5, 100 + n * 137 % 1900, ["paid", "open", "paid", "void"][n % 4]) for n in range(1, 41)]
shop.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
shop.commit()
END
