"""The trace level by perf events, where eBPF cannot be had."""
