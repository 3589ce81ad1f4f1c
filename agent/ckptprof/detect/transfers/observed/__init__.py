"""From samples to transfers: by polling open files, and by the sessions of the trace."""
