"""What is stored and what a run does, as plain data: read by the JSON routes of `/admin` and by the page."""
