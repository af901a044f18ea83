"""The dialects of the API: a route and its wire format each."""
