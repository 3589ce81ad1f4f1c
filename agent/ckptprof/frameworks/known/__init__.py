"""What is known of each framework, by its layer; `table` has them all."""
