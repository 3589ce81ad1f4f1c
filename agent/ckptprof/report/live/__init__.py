"""The output of `ckptprof live`: the state of a host at one instant, and its screen."""
