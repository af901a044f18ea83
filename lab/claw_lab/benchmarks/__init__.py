"""Programs that measure the numbers of lab/reports."""
