"""The only place that knows SQL: events as plain rows, timelines as compressed blocks, in one file.

Nothing is imported here: `reader`, `records` and two modules of `sql` import SQLAlchemy, the others do not.
"""
