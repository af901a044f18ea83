"""Tasks in OSWorld's JSON: parsing, preparation and scoring."""
