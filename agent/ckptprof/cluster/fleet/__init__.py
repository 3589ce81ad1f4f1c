"""Pure: what those ask who run many jobs on many nodes, answered from merged checkpoints."""
