"""What runs in the sampler's process: it reads the kernel, and knows neither SQL nor detection."""
