"""A chat in the terminal that shows what the loop makes of it: python -m openclaw.chat"""
