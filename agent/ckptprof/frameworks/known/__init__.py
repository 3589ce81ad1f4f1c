"""What is known of each framework, one file for each; `table` has them all."""
