"""The conclusions from the accounts: the limit, its cause, the evidence, and the gain without it."""
