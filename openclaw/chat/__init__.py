"""A terminal chat that shows how the loop uses it: python -m openclaw.chat"""
