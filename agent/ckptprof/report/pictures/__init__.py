"""What a report draws with characters."""
