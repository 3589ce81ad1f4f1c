"""What is concluded from the accounts: the limit, its cause, the evidence for it and what its end would gain."""
