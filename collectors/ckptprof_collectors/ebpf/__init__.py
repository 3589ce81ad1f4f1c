"""The trace level by eBPF; the programs themselves are in bpf/."""
