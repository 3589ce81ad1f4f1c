"""Facts of files and folders, by their file system."""
