#!/bin/bash
# Proof: `ckptprof fleet annotate` notes what a job's checkpoints did in the accounting of a real Slurm, over no other comment.
#
# As root, with Debian's slurmctld, slurmd, slurmdbd, mariadb-server and munge: benchmarks/proofs/annotate.sh. It takes a
# minute, and keeps all in a temporary folder. Four jobs: one that has no comment, one that was annotated by an older
# ckptprof, one that jobstats has, and one of which no checkpoint is told.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d /tmp/ckptprof-annotate.XXXXXX)
host=$(hostname -s)
failed=0
end() {
    for daemon in slurmd slurmctld slurmdbd mariadbd munged; do
        pid=$(cat "$work/$daemon.pid" 2>/dev/null) || continue
        kill "$pid"
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    done
    rm -rf "$work"
}
trap end EXIT
chmod 755 "$work"
mkdir -p "$work"/{spool,state,munge,data,nodes}
head -c 128 /dev/urandom >"$work/munge/key"
chmod 600 "$work/munge/key"
chown -R munge:munge "$work/munge"
chown mysql:mysql "$work/data"
runuser -u munge -- munged --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munge/munged.pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed"
ln -s munge/munged.pid "$work/munged.pid"
mariadb-install-db --no-defaults --user=mysql --datadir="$work/data" --skip-test-db >"$work/install.log" 2>&1
mariadbd --no-defaults --user=mysql --datadir="$work/data" --socket="$work/data/socket" --pid-file="$work/data/mariadbd.pid" \
    --port=16819 --bind-address=127.0.0.1 --innodb-use-native-aio=0 >"$work/mariadbd.log" 2>&1 &
ln -s data/mariadbd.pid "$work/mariadbd.pid"
ask() { mariadb --no-defaults --socket="$work/data/socket" -e "$1"; }
for _ in $(seq 60); do ask 'SELECT 1' >/dev/null 2>&1 && break || sleep 0.5; done
ask "CREATE DATABASE slurm_acct_db; GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1 IDENTIFIED BY 'slurm'"
export SLURM_CONF=$work/slurm.conf
cat >"$work/slurmdbd.conf" <<END
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=16820
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=16819
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
PidFile=$work/slurmdbd.pid
LogFile=$work/slurmdbd.log
END
chmod 600 "$work/slurmdbd.conf"
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
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16820
AccountingStoragePass=$work/munge/socket
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=h100 Nodes=$host Default=YES
END
slurmdbd
for _ in $(seq 60); do sacctmgr -n show cluster >/dev/null 2>&1 && break || sleep 0.5; done
sacctmgr -i -Q add cluster alpha
slurmctld
slurmd -N "$host"
for _ in $(seq 60); do [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break || sleep 1; done

check() { # name, what has to be true
    name=$1
    shift
    if "$@"; then echo "ok      $name"; else echo "FAILED  $name" && failed=1; fi
}
comment() { sacct -n -P -X -j "$1" -o AdminComment; }
is() { [ "$(comment "$1")" = "$2" ] || { comment "$1"; return 1; }; }
for name in bare ours theirs silent; do
    declare "$name=$(sbatch --parsable -W -o /dev/null --wrap true)"
done
accounted() { [ "$(sacct -n -X -j "$bare,$ours,$theirs,$silent" -o State | grep -c COMPLETED)" = 4 ]; }
for _ in $(seq 60); do accounted && break || sleep 0.5; done
check "four jobs are in the accounting" accounted
sacctmgr -i -Q modify job where "jobid=$ours" set "AdminComment=cp1: saves=1 restores=0"
sacctmgr -i -Q modify job where "jobid=$theirs" set "AdminComment=JS1:H4sIAAAAAAAAA"

(cd "$root" && PYTHONPATH=tests:. .venv/bin/python - "$work/nodes" "$bare" "$ours" "$theirs" <<'END'
import sys
from pathlib import Path

from tests.cluster.nodes import Job
from tests.cluster.test_commands import write

folder, *jobs = sys.argv[1:]
for number in jobs:
    made = Job(nodes=2, saves=3, name=f"job-{number}", key=f"slurm:alpha/{number}.0", job_id=number)
    write(Path(folder), made.seen()[0])
END
)
note='cp1: saves=3 restores=0 incomplete=0 bytes=629161470 stall_seconds=24 stalls_unknown=0 gpu_seconds=380 share=0.0133 limit=device newest_step=300'
annotate() { "$root/.venv/bin/ckptprof" fleet annotate --db "$work/nodes" "$@"; }
COLUMNS=200 annotate
check "nothing is written unless it is asked for" is "$bare" ""
check "notes are written" annotate --write
check "where there was none" is "$bare" "$note"
check "and over an older one" is "$ours" "$note"
check "another's stays" is "$theirs" "js1:h4siaaaaaaaaa"
check "and what no checkpoint is of" is "$silent" ""
modified=$(grep -c "" "$work/slurmdbd.log")
check "a second time" annotate --write
check "nothing is to be done" [ "$(annotate --json | grep -c '"action": *"keep"')" = 2 ]
COLUMNS=200 annotate
sacct -X -o "JobIDRaw,AdminComment%160"
runuser -u nobody -- env SLURM_CONF="$SLURM_CONF" sacctmgr -i modify job where "jobid=$silent" set AdminComment=x | tail -1
[ $failed = 0 ] || tail -5 "$work"/*.log
exit $failed
