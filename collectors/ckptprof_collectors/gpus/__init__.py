"""What NVIDIA's driver tells of GPUs."""
