"""Copying, moving, packing and reading checkpoints and data sets, by the programs that people use for it."""

from __future__ import annotations

from everyday.task import python, shell

TASKS = (
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
