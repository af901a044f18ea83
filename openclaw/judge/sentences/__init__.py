"""A small model that reads what a person writes after an answer, to help the judge's rules."""
