"""What every request passes before its route: header limits, sizes, rates, times."""
