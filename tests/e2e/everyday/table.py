"""All everyday work, and what it needs: one line here adds a task."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from everyday.task import Place, Task, python, shell

# Copying, moving, packing and reading checkpoints and data sets, by the programs that people use for it
_MOVING = (
    shell("cp a checkpoint", "cp -r $STORE/checkpoint-500 . && cp -r $STORE/global_step5 $STORE/ckpt_00000009.npz ."),
    shell(
        "cp into a known name",
        "mkdir -p run/global_step7 && cp $STORE/blob.bin run/global_step7/mp_rank_00_model_states.pt",
    ),
    shell(
        "mv from memory to disk",
        "d=$(mktemp -d /dev/shm/everyday.XXXXXX); trap 'rm -rf $d' EXIT; "
        "cp -r $STORE/checkpoint-500 $d/ && mv $d/checkpoint-500 .",
    ),
    shell(
        "rsync",
        "rsync -a $STORE/checkpoint-500 $STORE/shards out/ && "
        "rsync -a --bwlimit=60M --inplace $STORE/global_step5 out/",
        "rsync",
    ),
    shell("tar", "tar -C $STORE -cf all.tar checkpoint-500 shards && mkdir out && tar -C out -xf all.tar"),
    shell("tar and gzip", "tar -C $STORE -cz -f a.tar.gz global_step5 && tar -xzf a.tar.gz"),
    shell(
        "zstd",
        "zstd -q -1 -o model.safetensors.zst $STORE/checkpoint-500/model.safetensors && "
        "zstd -q -d -o model.safetensors model.safetensors.zst",
        "zstd",
    ),
    shell("gzip", "cp $STORE/checkpoint-500/optimizer.pt . && gzip -1 optimizer.pt && gunzip optimizer.pt.gz"),
    shell("unzip", "unzip -q $STORE/release.zip", "unzip"),
    shell(
        "dd",
        "dd if=/dev/zero of=model.ckpt bs=1M count=150 status=none && "
        "dd if=$STORE/blob.bin of=disk.img bs=4M status=none "
        "&& dd if=model.ckpt of=/dev/null bs=1M status=none",
    ),
    shell(
        "cat parts together",
        "split -b 16M $STORE/checkpoint-500/model.safetensors part. && cat part.* > model.safetensors",
    ),
    shell("sha256sum", "sha256sum $STORE/checkpoint-500/* $STORE/global_step5/* > sums && sha256sum -c --quiet sums"),
    shell(
        "sums by a short program",
        "for round in 1 2 3; do for file in $STORE/global_step5/*; do "
        "perl -e 'while (sysread STDIN, $piece, 1 << 20) { $sum += unpack \"%32C*\", substr $piece, 0, 64 }' < $file; "
        "sleep 0.3; done; done",
        "perl",
    ),
    shell("grep through everything", "grep -rc no-such-text $STORE/checkpoint-500 $STORE/shards > counts || true"),
    shell(
        "docker load by hand",
        "mkdir l1 l2 && tar -C l1 -xf $STORE/layer.tar && tar -C l2 -xf $STORE/layer.tar && "
        "cat l1/usr/lib/* > l2/merged",
    ),
    python("shutil copies a checkpoint", "copies.py", "tree", "{store}/checkpoint-500"),
    python("shutil with torch loaded", "copies.py", "tree-torch", "{store}/checkpoint-500"),
    python(
        "read and write with torch loaded", "copies.py", "by-hand-torch", "{store}/checkpoint-500/model.safetensors"
    ),
    python("unpack by Python", "copies.py", "untar", "{store}/layer.tar"),
    python("zipfile with numpy loaded", "copies.py", "unzip-numpy", "{store}/release.zip"),
    python("hash a checkpoint with torch loaded", "copies.py", "hash-torch", "{store}/checkpoint-500"),
)


def _pip_install(place: Place) -> None:
    place.run(sys.executable, "-m", "venv", "--without-pip", "venv")
    wheels = [str(wheel) for wheel in sorted((place.store / "wheels").glob("*.whl"))]
    place.run(
        sys.executable, "-m", "pip", "--python", place.folder / "venv/bin/python", "install", "-q", "--no-deps",
        "--no-index", "--disable-pip-version-check", *wheels,
    )  # fmt: skip


_FETCHING = (
    python("curl a model", "fetches.py", "curl", "{store}", needs=("curl",)),
    python("wget a model", "fetches.py", "wget", "{store}", needs=("wget",)),
    python("urllib fetches a model", "fetches.py", "urllib", "{store}"),
    python("urllib with torch loaded", "fetches.py", "urllib-torch", "{store}"),
    python("hub's cache", "fetches.py", "snapshot", "{store}"),
    python("hub's cache with torch loaded", "fetches.py", "snapshot-torch", "{store}"),
    python("upload", "fetches.py", "upload", "{store}"),
    python("upload with torch loaded", "fetches.py", "upload-torch", "{store}"),
    Task("pip install", _pip_install),
    shell(
        "dpkg -i",
        "mkdir -p root/var/lib/dpkg/{updates,info} && touch root/var/lib/dpkg/status && "
        "dpkg --root=$PWD/root --force-not-root --force-depends --force-script-chrootless --no-triggers -i "
        "$STORE/debs/*.deb",
        "dpkg",
    ),
    shell("apt-get download", "apt-get -qq -o APT::Sandbox::User=root download libllvm14 gcc-12", "apt-get"),
    shell(
        "npm install",
        'mkdir app && cd app && echo \'{"name":"app","version":"1.0.0"}\' > package.json && '
        "npm install --offline --no-audit --no-fund --cache ../cache $STORE/blobs-1.0.0.tgz",
        "npm",
        optional=True,
    ),
)

_FUNCTIONS = (
    "for f in $(seq 6); do { echo '#include <math.h>'; for n in $(seq 220); do "
    'echo "double f_${f}_$n(double *x, int k) { double s = $n; for (int i = 0; i < k; '
    "i++) s += sin(x[i] * $n) / (i + $f); "
    'return s; }"; done; echo "static char table_$f[4000000] = {1}; char *get_$f(void) { return table_$f; }"; '
    "} > unit$f.c; done"
)

_BUILDING = (
    shell(
        "git clone",
        "git clone -q --no-local --no-hardlinks $STORE/models.git out && cd out && git checkout -q old && "
        "git checkout -q main",
        "git",
    ),
    shell(
        "git commit and repack",
        "git init -q . && git config core.compression 1 && git config user.email a@b && git config user.name a && "
        "cp -r $STORE/checkpoint-500 . && git add . && git commit -qm all && git repack -adq",
        "git",
    ),
    shell(
        "compile C",
        _FUNCTIONS + "; for f in unit*.c; do gcc -g3 -O1 -c $f; done; ar rc libunits.a unit*.o; "
        "gcc -g -shared -o libunits.so -Wl,--whole-archive libunits.a -Wl,--no-whole-archive -lm",
        "gcc",
        "ar",
    ),
    python("cache of compiled kernels", "learning.py", "kernels"),
)

_CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


@contextlib.contextmanager
def _cores_in_files() -> Iterator[None]:
    """Let cores go to files if a program takes them, and give it back; needs root only then."""
    before = _CORE_PATTERN.read_text()
    if not before.startswith("|"):
        yield
        return
    _CORE_PATTERN.write_text("core.%p")
    try:
        yield
    finally:
        _CORE_PATTERN.write_text(before)


def _core_dump(place: Place) -> None:
    with _cores_in_files():
        place.python("crash.py", "200")
    if not any(place.folder.glob("core*")) and os.geteuid() == 0:
        raise FileNotFoundError(f"no core was dumped: {_CORE_PATTERN.read_text()!r}")


_FIO = "--filename=fio.dat --size=128M --runtime=2 --time_based --group_reporting --output=fio.log"

_STORING = (
    python("SQLite", "stores.py", "sqlite"),
    python("LMDB-like maps", "stores.py", "mapped"),
    python("fast log", "stores.py", "log"),
    python("journal", "stores.py", "journal"),
    python("mail", "stores.py", "mail"),
    python("video", "stores.py", "video"),
    python("logs in a checkpoint's name", "stores.py", "imitate"),
    shell("log rotation", "for i in 1 2 3; do { yes 'a line of a log that says very little' || true; "
    "} | head -c 30M > app.log; "
          "mv app.log app.log.$i; gzip -1 app.log.$i; done"),
    shell("logrotate", "{ yes 'GET / 200' || true; } | head -c 40M > access.log; "
    "printf '%s/access.log {\\n rotate 2\\n compress\\n copytruncate\\n}\\n' $PWD > c; "
          "chmod 644 c; /usr/sbin/logrotate -f -s state c", "/usr/sbin/logrotate"),
    shell("swap file", "fallocate -l 128M swapfile; chmod 600 swapfile; "
    "dd if=/dev/zero of=swapfile bs=1M count=128 conv=notrunc status=none; "
          "/sbin/mkswap -q swapfile", "/sbin/mkswap"),
    shell("fio random writes", f"fio --name=r --rw=randwrite --bs=16k --ioengine=psync --fsync=64 {_FIO}", "fio"),
    shell("fio direct", f"fio --name=d --rw=randrw --bs=64k --ioengine=libaio --iodepth=8 --direct=1 {_FIO}", "fio"),
    shell("fio sequential", f"fio --name=s --rw=write --bs=1M --ioengine=psync {_FIO}", "fio"),
    Task("core dump", _core_dump),
)  # fmt: skip
# What training jobs and their neighbours write and read beside checkpoints
_LEARNING = (
    *(python(f"shards .{suffix}", "dataset.py", "shards", suffix) for suffix in ("npy", "npz", "pt", "bin", "arrow")),
    python("tokens in a memmap", "dataset.py", "tokens"),
    python("cached features", "dataset.py", "features"),
    python("loader reads shards", "dataset.py", "loader", "{store}/shards"),
    python("loader reads a memmap", "dataset.py", "map", "{store}/tokens.bin"),
    python("loader reads latents", "dataset.py", "latents", "{store}/latents"),
    python("data set in one file", "dataset.py", "one", "{store}/train_images.npy"),
    python("event files", "learning.py", "events"),
    python("tracker", "learning.py", "tracker"),
    python("chrome traces", "learning.py", "traces"),
    python("predictions", "learning.py", "predictions"),
    python("training that only logs", "learning.py", "train"),
)

TASKS: tuple[Task, ...] = (*_MOVING, *_FETCHING, *_BUILDING, *_STORING, *_LEARNING)
BY_NAME: dict[str, Task] = {task.name: task for task in TASKS}
