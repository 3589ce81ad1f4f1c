#!/bin/sh
# ckptprof's epilog for slurmd: removes the files that prolog.sh wrote for a job. Like prolog.sh it queries no server,
# waits at most two seconds for another hook on the same GPUs, and always exits with 0.
trap 'exit 0' EXIT HUP INT QUIT TERM
exec </dev/null >/dev/null 2>&1
PATH=/usr/bin:/bin:${PATH:-}
run=${CKPTPROF_SLURM_DIR:-/run/ckptprof-slurm}
job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
umask 077 # any user who can open the lock can block it
free() {
    umask 022
    flock -w 2 9 # or a prolog's line, written meanwhile, would be lost
    set --
    for gpu in "$run"/gpus/[0-9]*; do
        [ -f "$gpu" ] || continue
        mine= others= new=$run/gpus/.${gpu##*/}
        while read -r one; do
            if [ "$one" = "$job" ]; then mine=yes; else others="$others$one
"; fi
        done <"$gpu"
        [ -n "$mine" ] || continue
        if [ -z "$others" ]; then
            set -- "$@" "$gpu"
        else
            printf '%s' "$others" >"$new" && mv -f "$new" "$gpu" || set -- "$@" "$new"
        fi
    done
    rm -f "$run/jobs/$job" "$run/jobs/.$job" "$@"
    return 0
}
free 9>>"$run/jobs/.lock" || free
exit 0
