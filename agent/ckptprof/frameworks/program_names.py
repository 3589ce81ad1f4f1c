"""Programs and libraries, by name: launchers, interpreters, training libraries, and tools that only move files."""

from __future__ import annotations

from ckptprof.frameworks.framework_table import FRAMEWORKS

# programs whose children are the ranks of one job, as scripts or as modules (`python -m`)
LAUNCHERS = frozenset(
    (
        "torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic", "torchx",
        "colossalai", "horovodrun", "bytepsrun", "ipexrun",
        *(program for framework in FRAMEWORKS for program in framework.launchers),
    )
)  # fmt: skip
# (rank, size) as each launcher sets them, the most specific first
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", ""),
    ("PALS_RANKID", ""),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
)
# beginnings of the names of processes that run Python code
INTERPRETERS = ("python", "pt_main_thread", "pt_elastic", "torchrun", "accelerate", "deepspeed", "pypy")
# programs that run another one, by which a job is named
RUNNERS = frozenset(
    (
        "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh",
        "chrt", "env", "ionice", "nice", "nohup", "numactl", "script", "setpriv", "setsid", "stdbuf", "su", "sudo",
        "taskset", "time", "timeout", "xargs",
        "ckptprof",
        "conda", "docker-init", "dumb-init", "mamba", "micromamba", "pipenv", "pixi", "poetry", "tini", "uv",
    )
)  # fmt: skip
# modules that multiprocessing and the like run in the processes that they start by exec
HELPERS = ("multiprocessing.", "multiprocess.", "billiard.", "joblib.", "loky.", "torch._inductor.")
# libraries that a process may have loaded: a new one is named in RUNTIME_MARKS of the collectors' process.py, too
TRAINING_RUNTIMES = frozenset(("torch", "jax", "tensorflow", "paddle", "mindspore", "mxnet"))
NUMERIC_RUNTIMES = frozenset(("numpy", "safetensors"))
GPU_RUNTIMES = frozenset(("cuda", "hip", "nccl", "gpu"))

# copy, pack, unpack, upload, download: a checkpoint that they write is a copy
TRANSFER_TOOLS = frozenset(
    (
        "cp", "mv", "dd", "install", "rsync", "scp", "sftp", "sftp-server", "ftp", "lftp", "tar", "bsdtar", "cpio",
        "gzip", "gunzip", "pigz", "unpigz", "zstd", "unzstd", "pzstd", "xz", "unxz", "lz4", "bzip2", "pbzip2", "zip",
        "unzip", "7z", "7za", "7zr", "cat", "tee", "split", "pv", "mbuffer", "git", "git-lfs", "git-remote-http", "dvc",
        "curl", "wget", "wget2", "aria2c", "axel", "aws", "s3cmd", "s5cmd", "s4cmd", "mc", "gsutil", "gcloud", "rclone",
        "azcopy", "az", "oci", "ossutil", "ossutil64", "coscli", "obsutil", "b2", "huggingface-cl", "huggingface-cli",
        "hf", "hf_transfer", "modelscope", "kaggle", "gdown", "croc", "bbcp", "bbftp", "globus", "globus-url-copy",
        "mpifileutils", "dcp", "dsync", "dtar", "fpsync", "fpart", "msrsync", "parsyncfp", "lsyncd", "syncthing",
        "restic", "borg", "kopia", "duplicity", "rdiff-backup", "rsnapshot", "bup", "tarsnap", "nc", "ncat", "socat",
        "scrub", "cpg", "xcp", "robocopy", "ditto", "umount.fuse", "unsquashfs", "mksquashfs", "skopeo", "ollama",
    )
)  # fmt: skip
# make, install, serve, test, log, dump: what they write is no checkpoint
OTHER_TOOLS = frozenset(
    (
        "pip", "pip3", "uv", "poetry", "pdm", "conda", "conda-build", "mamba", "micromamba", "pixi", "apt", "apt-get",
        "apt-key", "aptitude", "dpkg", "dpkg-deb", "dnf", "yum", "rpm", "zypper", "pacman", "apk", "snapd", "brew",
        "npm", "npx", "pnpm", "yarn", "cargo", "rustc", "go", "gradle", "mvn", "bazel", "ninja",
        "make", "cmake", "cc1", "cc1plus", "cc1obj", "collect2", "gcc", "g++", "clang", "clang++", "ld", "ld.gold",
        "ld.lld", "lld", "mold", "as", "ar", "ranlib", "strip", "objcopy", "nvcc", "cicc", "ptxas", "fatbinary",
        "ccache", "sccache", "distcc", "tsc", "esbuild", "webpack", "postgres", "postmaster", "pg_dump", "pg_restore",
        "pg_basebackup", "pgbench", "psql", "initdb", "mysqld", "mariadbd", "mysqldump", "sqlite3", "redis-server",
        "redis-rdb-bgsav", "redis-aof-rewr", "valkey-server", "memcached", "mongod", "mongodump", "clickhouse",
        "clickhouse-serv", "influxd", "prometheus", "grafana", "loki", "promtail", "vector", "fluentd", "fluent-bit",
        "telegraf", "etcd", "minio", "weed", "cassandra", "elasticsearch", "rocksdb_ldb", "db_bench", "ycsb", "dockerd",
        "containerd", "containerd-shim", "docker", "podman", "buildkitd", "buildah", "qemu-system-x86", "qemu-img",
        "fio", "ior", "mdtest", "iozone", "bonnie++", "filebench", "sysbench", "stress", "stress-ng", "systemd-coredum",
        "systemd-journal", "journald", "gcore", "gdb", "makedumpfile", "kdump", "apport", "logrotate", "rsyslogd",
        "syslog-ng", "auditd", "savelog", "nsys", "ncu", "perf", "strace", "ltrace", "bpftrace", "tcpdump", "dumpcap",
        "tshark", "trace-cmd", "tensorboard", "wandb", "wandb-core", "wandb-service", "mlflow", "ffmpeg", "ffprobe",
        "x264", "x265", "SvtAv1EncApp", "aomenc", "gst-launch-1.0", "handbrake", "convert", "magick", "mogrify",
        "updatedb", "locate", "mandb", "fc-cache", "ldconfig", "depmod", "mkinitramfs", "update-initramf", "dracut",
        "fsck", "mkfs.ext4", "mkfs.xfs", "mke2fs", "mkswap", "fallocate", "truncate", "shred", "badblocks",
        "clamscan", "clamd", "freshclam", "sha256sum", "sha1sum", "sha512sum", "md5sum", "b3sum", "xxhsum", "cksum",
        "diff", "cmp", "grep", "rg", "ag", "find", "sort", "uniq", "awk", "gawk", "mawk", "sed", "wc", "head", "tail",
        "less", "more", "vim", "vi", "nano", "emacs", "file", "xxd", "od", "hexdump", "strings",
    )
)  # fmt: skip
TOOLS = TRANSFER_TOOLS | OTHER_TOOLS
