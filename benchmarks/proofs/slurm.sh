#!/bin/bash
# Proof: a prolog and an epilog of deploy/slurm drain no node, under a real Slurm of one node on this machine.
#
# As root, with Debian's slurmctld, slurmd, slurm-client and munge: benchmarks/proofs/slurm.sh. It takes two minutes, keeps
# all but /run/ckptprof-slurm in a temporary folder, and fails if a job fails, the node is not idle at an end, or a file of
# a job is left over. 20 jobs: undisturbed, with a file in the place of the folder, on a full file system, with an agent
# that is stopped, and one that is queued again.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d /tmp/ckptprof-slurm.XXXXXX)
run=/run/ckptprof-slurm
host=$(hostname -s)
failed=0
end() {
    for daemon in slurmd slurmctld munged; do
        pid=$(cat "$work/$daemon.pid" 2>/dev/null) || continue
        kill "$pid"
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    done
    mountpoint -q $run && umount $run
    rm -rf "$work" $run
}
trap end EXIT
chmod 755 "$work"
mkdir -p "$work"/{spool,state,prolog.d,epilog.d,munge}
head -c 128 /dev/urandom >"$work/munge/key"
chmod 600 "$work/munge/key"
chown -R munge:munge "$work/munge"
install -m 755 "$root/deploy/slurm/prolog.sh" "$work/prolog.d/ckptprof.sh"
install -m 755 "$root/deploy/slurm/epilog.sh" "$work/epilog.d/ckptprof.sh"
export SLURM_CONF=$work/slurm.conf
cat >"$SLURM_CONF" <<END
ClusterName=alpha
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
MpiDefault=none
Prolog=$work/prolog.d/*
Epilog=$work/epilog.d/*
PrologFlags=Alloc
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=h100 Nodes=$host Default=YES
END
runuser -u munge -- munged --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munge/munged.pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed"
ln -s munge/munged.pid "$work/munged.pid"
slurmctld
slurmd -N "$host"
for _ in $(seq 60); do
    [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break
    sleep 1
done

check() { # name, what has to be true
    name=$1
    shift
    if "$@"; then echo "ok      $name"; else echo "FAILED  $name" && failed=1; fi
}
is_idle() {
    for _ in $(seq 30); do
        [ "$(sinfo -h -o %T)" = idle ] && return 0
        sleep 1
    done
    sinfo -h -o "%N %T %E"
    return 1
}
jobs_succeed() { # how many, what each runs
    for _ in $(seq "$1"); do
        sbatch -Q -W -o "$work/out.%j" --wrap "$2" || return 1
    done
    is_idle
}
nothing_is_left() { sleep 1 && [ -z "$(find $run -type f)" ]; }

rm -rf $run
told='grep -qx "SLURM_JOB_USER=$(id -un)" /run/ckptprof-slurm/jobs/$SLURM_JOB_ID && grep -qx SLURM_JOB_PARTITION=h100 /run/ckptprof-slurm/jobs/$SLURM_JOB_ID'
check "5 jobs are told while they run" jobs_succeed 5 "$told"
check "and not once they have ended" nothing_is_left
rm -rf $run && echo x >$run
check "5 jobs with a file in the place of the folder" jobs_succeed 5 true
rm -f $run && mkdir $run && mount -t tmpfs -o size=16k tmpfs $run && mkdir $run/jobs $run/gpus
dd if=/dev/zero of=$run/full status=none 2>/dev/null
check "5 jobs on a full file system" jobs_succeed 5 true
umount $run && rm -rf $run
"$root/.venv/bin/ckptprof" agent --db "$work/a.db" --no-metrics --level poll >"$work/agent.log" 2>&1 &
agent=$!
sleep 5
kill -STOP $agent
check "4 jobs with an agent that is stopped" jobs_succeed 4 "$told"
kill -CONT $agent && kill $agent && wait $agent
job=$(sbatch --parsable --requeue --open-mode=append -o "$work/again.%j" --wrap "$told && echo told; sleep 5")
for _ in $(seq 100); do
    grep -qsx told "$work/again.$job" && break
    sleep 0.2
done
scontrol requeue "$job"
for _ in $(seq 200); do
    [ -n "$(squeue -h -j "$job" 2>/dev/null)" ] || break
    scontrol update JobId="$job" StartTime=now 2>/dev/null
    sleep 1
done
check "1 job that is queued again is told twice" [ "$(grep -cx told "$work/again.$job")" = 2 ]
check "its node is idle" is_idle
check "nothing is left" nothing_is_left
exit $failed
