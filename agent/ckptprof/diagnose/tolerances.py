"""The heights of diagnosis: each is used wherever it fits, so that there is one number to hold and to change."""

# Shares of a whole: of its time, its bytes or its requests
NEARLY_ALL = 0.9
LARGELY = 0.7
MOST = 0.5
PART = 1 / 3  # enough to explain something
LITTLE = 0.2
SLIGHT = 0.1  # less is negligible, and not reported
HARDLY_ANY = 0.05

CLEARLY = 1.3  # times another value: more than by chance
TWICE = 2.0
FEW = 8  # requests, samples: fewer have no mean, and are chance
MOMENT_SECONDS = 0.5  # less than a step of a large model
SHORT_SECONDS = 1.0
TICK_SECONDS = 0.02  # of busy time, which the kernel counts in ticks: rates over shorter times are noise
SMALL_BYTES = 128 << 10  # of a file, a request, or a call that bypasses the page cache
TINY_BYTES = 16 << 10  # too small for the full speed of any device or server
MEMORY_RATE = 1e9  # bytes per second that one thread copies at least
SLOW_MEMORY_RATE = 200e6  # a copy is slower only on a VM whose host has to supply the pages; pickling always is

SNIA_SHARE = 0.05  # checkpointing takes less than 5 % of the time in training
FIELD_MEAN_SHARE, FIELD_MOST_SHARE = 0.12, 0.43  # of training time in checkpoints (Maeng et al. 2021)
