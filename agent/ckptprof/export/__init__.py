"""What other programs read: Prometheus."""
