"""The long-running commands: `agent`, `run`, `capture` and `replay`."""
