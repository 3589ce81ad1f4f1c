"""What goes on, for who watches it: handed out by the agent, and taken from it or from its database."""
