"""What several commands share and no option is."""
