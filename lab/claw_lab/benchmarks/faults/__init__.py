"""What is kept when something dies, fills up or misbehaves."""
