"""What the long-running commands do: `agent`, `run`, `capture` and `replay`."""
