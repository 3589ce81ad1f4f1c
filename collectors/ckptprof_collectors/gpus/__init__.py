"""GPUs, by NVIDIA's driver."""
