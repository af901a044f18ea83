import sqlite3

ORDERS = [
    (n, 1 + n * 7 % 5, 100 + n * 137 % 1900, ["paid", "open", "paid", "void"][n % 4])
    for n in range(1, 41)
    if n % 4 != 3
]


def shop(statement):
    return sqlite3.connect("file:/app/shop.db?mode=ro", uri=True).execute(statement).fetchall()


def test_the_column_is_there_with_its_values():
    assert ("euros", "REAL") in [(row[1], row[2]) for row in shop("PRAGMA table_info(orders)")]
    rows = shop("SELECT id, customer, cents, state, euros FROM orders ORDER BY id")
    assert rows == [(*order, order[2] / 100) for order in ORDERS]


def test_the_index_is_there_and_no_order_that_is_void():
    assert shop(
        "SELECT tbl_name FROM sqlite_master WHERE type = 'index' AND name = 'orders_by_customer'"
    ) == [("orders",)]
    assert [row[2] for row in shop("PRAGMA index_xinfo(orders_by_customer)")][:1] == ["customer"]
    assert shop("SELECT count(*) FROM orders") == [(len(ORDERS),)] and shop(
        "SELECT count(*) FROM customers"
    ) == [(6,)]
