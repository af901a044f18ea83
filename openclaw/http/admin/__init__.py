"""Health, status, feedback and administration over HTTP."""
