"""Network interfaces, their queues, and RDMA ports."""
