"""What flags demand of one another."""
