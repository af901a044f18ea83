"""Training: one trainer a rank, what both backends share in core, and the two backends."""
