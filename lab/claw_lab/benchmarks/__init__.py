"""Programs that print the numbers of lab/reports."""
