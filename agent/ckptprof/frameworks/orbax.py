"""Orbax (orbax/checkpoint): STEP.orbax-checkpoint-tmp*/ renamed to STEP/ when complete."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(
    name="orbax",
    files=patterns(
        r"/(?P<step>\d+)(?:\.orbax-checkpoint-tmp[^/]*)?/(?:.*/)?ocdbt\.process_(?P<rank>\d+)/d/[0-9a-f]{32}$",
        r"/ocdbt\.process_(?P<rank>\d+)/d/[0-9a-f]{32}$",
        r"/manifest\.ocdbt$",
        r"/_CHECKPOINT_METADATA$",
    ),
    unit=patterns(r"/(?P<step>\d+)(?:\.orbax-checkpoint-tmp[^/]*)?$"),
    commit=patterns(r"/commit_success\.txt$", r"/_CHECKPOINT_METADATA$"),
)
