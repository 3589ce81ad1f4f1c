"""Libraries with a layout of files of their own."""
