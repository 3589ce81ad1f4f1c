"""From the database of a node to one server for all of them, and what is read from there."""
