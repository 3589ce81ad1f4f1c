"""The entries of all frameworks, by layer; `table` joins them."""
