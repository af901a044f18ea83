from pathlib import Path

WANTED = "region,total\neast,55.40\nsouth,55.05\nnorth,39.74\n"


def test_totals_of_all_regions_in_order():
    assert Path("/app/totals.csv").read_text() == WANTED


def test_the_sales_are_untouched_beside_the_result():
    sales = Path("/app/sales.csv").read_text()
    assert Path("/app/totals.csv").exists() and sales.count("\n") == 8 and '"ink, blue, large",7.25' in sales
