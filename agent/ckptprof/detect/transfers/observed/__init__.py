"""From samples to transfers: by looks at open files, and by the sessions of the trace."""
