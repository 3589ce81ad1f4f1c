"""Shipping of a node's database to one server for all nodes, and reading from there."""
