"""Pure functions from a checkpoint and the measurements around it to its verdict and its cost (`diagnosis`)."""
