"""The tables, and each statement that a recorder runs: said with SQLAlchemy, and compiled for who does not load it.

Nothing is imported here: `compiled` and `columns` are light, `schema` and `statements` bring SQLAlchemy with them.
"""
