"""The only place that knows SQL: events as plain rows, timelines as compressed blocks, in one file.

Nothing is imported here: `location` and `timeline` are light, `writer` and `reader` bring SQLAlchemy with them.
"""
