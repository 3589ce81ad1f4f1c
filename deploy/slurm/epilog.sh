#!/bin/sh
# ckptprof's epilog for slurmd: takes away what prolog.sh wrote of a job. As that one it asks nobody, waits for nobody, and
# ends with 0 whatever happens.
trap 'exit 0' EXIT HUP INT QUIT TERM
exec </dev/null >/dev/null 2>&1
PATH=/usr/bin:/bin:${PATH:-}
run=${CKPTPROF_SLURM_DIR:-/run/ckptprof-slurm}
job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
umask 022
set --
for gpu in "$run"/gpus/[0-9]*; do
    [ -f "$gpu" ] || continue
    mine= others=
    while read -r one; do
        if [ "$one" = "$job" ]; then mine=yes; else others="$others$one
"; fi
    done <"$gpu"
    [ -n "$mine" ] || continue
    if [ -z "$others" ]; then
        set -- "$@" "$gpu"
    else
        printf '%s' "$others" >"$gpu.new" && mv -f "$gpu.new" "$gpu" || set -- "$@" "$gpu.new"
    fi
done
rm -f "$run/jobs/$job" "$run/jobs/.$job" "$@"
exit 0
