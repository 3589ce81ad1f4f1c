"""Pure functions that render reports for terminals, and as JSON and HTML."""
