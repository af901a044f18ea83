"""Tasks in OSWorld's JSON: reading, preparing, looking and scoring."""
