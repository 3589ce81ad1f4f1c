#!/bin/sh
# ckptprof's prolog for slurmd: writes the owner of a job to /run/ckptprof-slurm/jobs/JOB, for the agent, and its GPUs to
# /run/ckptprof-slurm/gpus/INDEX, for dcgm-exporter's --hpc-job-mapping-dir. See README.md in the folder above.
#
# A prolog that fails drains the node, and one that hangs blocks the job. This one queries no server, waits at most two
# seconds for another hook on the same GPUs, and always exits with 0. Each command may fail; none is a special builtin, which would end the shell.
trap 'exit 0' EXIT HUP INT QUIT TERM
exec </dev/null >/dev/null 2>&1
PATH=/usr/bin:/bin:${PATH:-}
run=${CKPTPROF_SLURM_DIR:-/run/ckptprof-slurm}
job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
umask 022
[ -d "$run/jobs" ] && [ -d "$run/gpus" ] || mkdir -p "$run/jobs" "$run/gpus"

# Owner of the job, for the agent only.
umask 077
{
    printf 'SLURM_JOB_UID=%s\n' "${SLURM_JOB_UID:-}" &&
        printf 'SLURM_JOB_USER=%s\n' "${SLURM_JOB_USER:-}" &&
        printf 'SLURM_JOB_ACCOUNT=%s\n' "${SLURM_JOB_ACCOUNT:-}" &&
        printf 'SLURM_JOB_PARTITION=%s\n' "${SLURM_JOB_PARTITION:-}"
} >"$run/jobs/.$job" && mv -f "$run/jobs/.$job" "$run/jobs/$job" || rm -f "$run/jobs/.$job"

# GPUs of the job, as 0,1 or 0-3: a line for each job that shares one. Any user who can open the lock can block it.
is_told() {
    while read -r one; do
        [ "$one" = "$job" ] && return 0
    done <"$1"
    return 1
}
tell() {
    umask 022
    flock -w 2 9
    rest=${SLURM_JOB_GPUS:-}
    while [ -n "$rest" ]; do
        some=${rest%%,*}
        case $rest in *,*) rest=${rest#*,} ;; *) rest= ;; esac
        first=${some%%-*} last=${some##*-}
        case $first$last in '' | *[!0-9]*) continue ;; esac
        [ "${#first}" -le 3 ] && [ "${#last}" -le 3 ] || continue
        while [ "$first" -le "$last" ]; do
            gpu=$run/gpus/$first first=$((first + 1))
            [ -f "$gpu" ] || [ ! -e "$gpu" ] || continue
            is_told "$gpu" || printf '%s\n' "$job" >>"$gpu"
        done
    done
    return 0
}
[ -z "${SLURM_JOB_GPUS:-}" ] || tell 9>>"$run/jobs/.lock" || tell
exit 0
