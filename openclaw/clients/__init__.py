"""Client-specific rules: session headers, patterns in texts, settings files."""
