"""The only place that knows SQL: events as plain rows, timelines as compressed blocks, in one file.

Nothing is imported here: `reader`, `records` and two of `sql` bring SQLAlchemy with them, the others are light.
"""
