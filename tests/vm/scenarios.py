"""What is planted in the virtual machine, by name: storage, and a fault or none."""

from __future__ import annotations

from dataclasses import dataclass, replace

# A server behind a link of its own: a network namespace
LINK = """
ip netns add server; ip link add v0 type veth peer name v1 netns server
ip addr add 10.9.0.1/24 dev v0; ip link set v0 up
ip -n server addr add 10.9.0.2/24 dev v1; ip -n server link set v1 up; ip -n server link set lo up
"""
UNLINK = "ip netns del server; sleep 1"
DISK = "mkfs.ext4 -q -F /dev/nvme0n1; mkdir -p /srv/nfs; mount /dev/nvme0n1 /srv/nfs; mkdir -p /mnt/ckpt"
UNDISK = "umount /srv/nfs"
DELAYED_DISK = """
mkdir -p /srv/nfs /mnt/ckpt; modprobe dm-delay
echo "0 $(blockdev --getsz /dev/nvme0n1) delay /dev/nvme0n1 0 0 /dev/nvme0n1 0 60" | dmsetup create slow
mkfs.ext4 -q -F -E nodiscard /dev/mapper/slow; mount /dev/mapper/slow /srv/nfs
"""
# After its grace period of ten seconds; NFS 3 asks rpcbind where mountd is
SERVER = """
modprobe nfsd; modprobe nfs
nsenter --net=/run/netns/server unshare --mount bash -c '
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib/nfs; mkdir -p /run/rpcbind /run/sendsigs.omit.d
cd /var/lib/nfs; mkdir sm sm.bak v4recovery nfsdcltrack; touch etab rmtab
mount -t nfsd nfsd /proc/fs/nfsd; rpcbind -w; echo 10 > /proc/fs/nfsd/nfsv4gracetime
exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=1,{sync} "*:/srv/nfs"
rpc.nfsd 8; rpc.mountd; sleep 12' < /dev/null > /root/server.log 2>&1
"""
UNSERVER = "nsenter --net=/run/netns/server rpc.nfsd 0 || true; pkill -x rpc.mountd || true; pkill -x rpcbind || true"
RDMA_SERVER = """
modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0; modprobe svcrdma; modprobe xprtrdma; modprobe nfsd
exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=1,sync "*:/srv/nfs"
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
echo 10 > /proc/fs/nfsd/nfsv4gracetime; rpc.mountd -N 2 -N 3; rpc.nfsd -N 3 --rdma=20049 8; sleep 12
mount -t nfs -o vers=4.2,proto=rdma,port=20049 "$(hostname -I | cut -d' ' -f1):/srv/nfs" /mnt/ckpt
"""
RDMA_UNSERVER = "umount /mnt/ckpt; rpc.nfsd 0; pkill -x rpc.mountd || true; exportfs -ua; rdma link del rxe0; sleep 1"
TARGET = """
modprobe nvmet-tcp; modprobe nvme-tcp; mkdir -p /mnt/ckpt
cd /sys/kernel/config/nvmet; mkdir subsystems/ckpt; echo 1 > subsystems/ckpt/attr_allow_any_host
mkdir subsystems/ckpt/namespaces/1; echo /dev/nvme2n1 > subsystems/ckpt/namespaces/1/device_path
echo 1 > subsystems/ckpt/namespaces/1/enable; mkdir ports/1
echo 10.9.0.2 > ports/1/addr_traddr; echo tcp > ports/1/addr_trtype; echo 4420 > ports/1/addr_trsvcid
echo ipv4 > ports/1/addr_adrfam
nsenter --net=/run/netns/server ln -s "$PWD/subsystems/ckpt" ports/1/subsystems/ckpt
nvme connect -t tcp -a 10.9.0.2 -s 4420 -n ckpt > /dev/null; sleep 2
device=/dev/$(ls /sys/class/nvme-subsystem/*/ | grep -x 'nvme[0-9]*n1' | sort | tail -1)
mkfs.ext4 -q -F "$device"; mount "$device" /mnt/ckpt
"""
UNTARGET = """
umount /mnt/ckpt; nvme disconnect -n ckpt > /dev/null; cd /sys/kernel/config/nvmet; rm ports/1/subsystems/ckpt
rmdir ports/1 subsystems/ckpt/namespaces/1 subsystems/ckpt
"""
RAID = """
yes | mdadm --quiet --create /dev/md0 --level=0 --raid-devices=2 /dev/nvme0n1 /dev/nvme2n1 --force
mkfs.xfs -q -f /dev/md0; mkdir -p /mnt/ckpt; mount /dev/md0 /mnt/ckpt
"""
UNRAID = "umount /mnt/ckpt; mdadm --quiet --stop /dev/md0; mdadm --zero-superblock /dev/nvme0n1 /dev/nvme2n1"
VOLUME = """
pvcreate -qq -y -ff /dev/nvme0n1; vgcreate -qq vg /dev/nvme0n1; lvcreate -qq -y -l 100%FREE -n ckpt vg
mkfs.btrfs -q -f /dev/vg/ckpt; mkdir -p /mnt/ckpt; mount /dev/vg/ckpt /mnt/ckpt
"""
UNVOLUME = "umount /mnt/ckpt; vgremove -qq -y vg; pvremove -qq -y /dev/nvme0n1"
SHAPED = "tc qdisc add dev v0 root tbf rate 40mbit burst 128kb latency 400ms"
LOSSY = "tc qdisc add dev v0 root netem loss 8%"
UNSHAPED = "tc qdisc del dev v0 root"


@dataclass(frozen=True)
class Scenario:
    """One of them: what the storage is, what is wrong with it, and the limit that says so."""

    storage: str
    prepare: str
    undo: str
    fault: str = ""
    limit: str = ""  # of each save; without a fault any but `network`
    mib: int = 96
    train_seconds: int = 6


def local(storage: str, device: str, make: str) -> Scenario:
    """Return a file system on a drive."""
    return Scenario(storage, f"{make} {device}; mkdir -p /mnt/ckpt; mount {device} /mnt/ckpt", "umount /mnt/ckpt")


def nfs(storage: str, options: str, sync: str = "sync", disk: str = DISK, undisk: str = UNDISK) -> Scenario:
    """Return an export of a drive, on another network."""
    mount = f"mount -t nfs -o {options} 10.9.0.2:/srv/nfs /mnt/ckpt"
    prepare = f"{disk}\n{LINK}\n{SERVER.format(sync=sync)}\n{mount}"
    return Scenario(storage, prepare, f"umount /mnt/ckpt\n{UNSERVER}\n{UNLINK}\n{undisk}")


def with_link(scenario: Scenario, fault: str, how: str) -> Scenario:
    """Return a scenario whose link has a fault."""
    prepare, undo = f"{scenario.prepare}\n{how}", f"{UNSHAPED}\n{scenario.undo}"
    return replace(scenario, prepare=prepare, undo=undo, fault=fault, limit="network", mib=24)


NFS = nfs("NFS 4.2 over TCP", "vers=4.2")
NVME_TCP = Scenario("NVMe over TCP, ext4", LINK + TARGET, UNTARGET + UNLINK)
SLOW_DISK = nfs("NFS 4.2 over TCP", "vers=4.2", disk=DELAYED_DISK, undisk="umount /srv/nfs; dmsetup remove slow")
SLOW_DRIVE = local("NVMe, XFS", "/dev/nvme1n1", "mkfs.xfs -q -f")
SCENARIOS = {
    "nvme": local("NVMe, ext4", "/dev/nvme0n1", "mkfs.ext4 -q -F"),
    "nvme-slow": replace(SLOW_DRIVE, fault="writes 8 MB/s", limit="device", mib=48),
    "raid0-xfs": Scenario("md RAID 0 of two NVMe, XFS", RAID, UNRAID),
    "lvm-btrfs": Scenario("LVM on NVMe, Btrfs", VOLUME, UNVOLUME),
    "nvme-tcp": NVME_TCP,
    "nvme-tcp-shaped": with_link(NVME_TCP, "link of 40 Mbit/s", SHAPED),
    "nfs42": NFS,
    "nfs42-shaped": with_link(NFS, "link of 40 Mbit/s", SHAPED),
    "nfs42-lossy": with_link(NFS, "8 % of packets lost", LOSSY),
    "nfs42-slow-disk": replace(SLOW_DISK, fault="a write to its disk takes 60 ms more", limit="server", mib=48),
    "nfs41-nconnect": nfs("NFS 4.1 over TCP, nconnect 4, async", "vers=4.1,nconnect=4", "async"),
    "nfs3": nfs("NFS 3 over TCP", "vers=3,nolock"),
    "nfs42-rdma": Scenario("NFS 4.2 over RDMA (rxe)", DISK + RDMA_SERVER, f"{RDMA_UNSERVER}\n{UNDISK}"),
}
