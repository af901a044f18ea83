"""Imports conversation histories of other programs, and exports sessions as ATIF."""
