"""The tables, and each statement that a recorder runs: said with SQLAlchemy, and compiled for who does not load it.

Nothing is imported here: `compiled` is nothing but texts, the others bring SQLAlchemy with them.
"""
