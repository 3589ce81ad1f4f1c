"""What the file system tells of files and folders."""
