"""What `ckptprof live` shows: the state of a host at one instant, and the screen that is drawn of it."""
