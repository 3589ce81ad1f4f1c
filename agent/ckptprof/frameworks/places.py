"""Places: folders and names of files that are no checkpoint of a job, and types of file systems."""

from __future__ import annotations

import re

# caches, packages, databases, build trees
NOT_OF_JOBS = re.compile(
    r"/(?:torchinductor_[^/]+|torch_compile_debug|torch_extensions|\.triton|inductor_cache|ComputeCache|\.nv|\.ccache|"
    r"__pycache__|site-packages|dist-packages|node_modules|\.npm|_cacache|\.cargo|\.rustup|\.git|\.svn|\.gradle|\.m2|"
    r"\.conda|pkgs|wheels|\.cache/(?!huggingface/|torch/)[^/]+)/"
    r"|^/var/(?:lib/(?:postgresql|mysql|pgsql|redis|mongodb|docker|containerd|apt|dpkg|rpm|elasticsearch|clickhouse|"
    r"prometheus|grafana|etcd|influxdb|cassandra|rabbitmq|systemd)|cache|log|backups|crash)/"
    r"|/(?:base|global)/\d+/\d+(?:\.\d+)?$|/pg_wal/|/pgdata/|/target/(?:debug|release)/|/datasets/[^/]+/[^/]+\.(?:bin|dat)$"
    r"|/wandb/[^/]+/(?:logs|tmp)/"
    r"|/offload(?:ed)?(?:[_-](?:folder|dir|weights))?/[^/]+\.dat$"  # accelerate/utils/offload.py
    r"|\.tensor\.swp$"  # deepspeed/runtime/swap_tensor/
)
# caches of model hubs
CACHES_OF_HUBS = re.compile(
    r"/\.cache/(?:huggingface|torch)/|/models--[^/]+/|/hub/checkpoints/|/\.modelscope/|/datasets--[^/]+/"
)
# unfinished downloads; zarr names its chunks so, too
UNFINISHED_DOWNLOADS = re.compile(
    r"\.(?:incomplete|partial|crdownload|aria2|download|filepart|!ut)$|/\.?[^/]+\.[A-Za-z0-9]{8}\.part$"
)

IN_MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"))
# as on block devices, fetched bytes show in the counters of the process that reads
COUNTED_BY_READER = frozenset(("nfs", "nfs4", "zfs", "btrfs", "overlay"))
NETWORKED = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "ncpfs", "coda", "afs", "9p"))
# without a sync, the data of a file reaches storage later than its name
DELAYED_ALLOCATION = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs"))
# ... unless it replaces another file: these then flush it (fs/ext4/namei.c, fs/btrfs/inode.c)
FLUSHED_BY_REPLACING = frozenset(("ext4", "btrfs"))
# of FUSE, with a server behind them
NETWORKED_DAEMONS = (
    "sshfs", "s3fs", "rclone", "goofys", "geesefs", "mountpoint-s3", "gcsfuse", "juicefs", "blobfuse", "seaweedfs",
    "alluxio", "ceph-fuse", "glusterfs", "hdfs", "davfs", "curlftpfs", "s3ql", "objectivefs", "cunofs", "cvmfs",
    "weed", "s3backer", "ossfs", "cosfs", "obsfs", "lustre", "gpfs", "beegfs", "daos", "moosefs", "mfs", "smbnetfs",
)  # fmt: skip
# ports of object stores: HTTP and HTTPS, Squid before them, MinIO, Ceph, ECS, SeaweedFS, StorageGRID, Ozone
OBJECT_STORE_PORTS = frozenset((80, 443, 3128, 9000, 7480, 7481, 9020, 9021, 8333, 8082, 10443, 9878, 9879))
# ports of other services whose clients send much: ssh, mail, rsync, git, databases, caches, brokers, logs
OTHER_SERVICE_PORTS = frozenset((
    22, 25, 514, 873, 1433, 1521, 2049, 2379, 3100, 3306, 4222, 4317, 4318, 5044, 5432, 5672, 6333, 6334, 6379, 6514,
    7687, 8086, 8123, 9042, 9091, 9092, 9093, 9094, 9200, 9300, 9418, 11211, 14268, 19530, 24224, 27017,
))  # fmt: skip
REMOTE_SOURCE = re.compile(
    r"^(?:[\w.-]+@)?(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):(?:/|~|$)|^[A-Za-z][\w+.-]*://|^//[\w.-]+/"
)  # HOST:PATH, URL://, //HOST/
