"""How often to save and on what storage: from figures that were measured or given to a plan."""
