"""The two processes, sampler and recorder, and the commands that start them."""
