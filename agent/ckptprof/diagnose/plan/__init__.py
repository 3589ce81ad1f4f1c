"""How often to save and on what storage: from measured or given figures to a plan."""
