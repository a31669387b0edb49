"""Other ways of writing a placement; each becomes a `Plan` like any other."""
