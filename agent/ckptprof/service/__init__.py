"""The sampler, the recorder, the writer and the protocol of systemd."""
