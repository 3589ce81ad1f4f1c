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
mkdir -p /srv/nfs /mnt/ckpt
{delay}
mkfs.ext4 -q -F -E nodiscard /dev/mapper/slow; mount /dev/mapper/slow /srv/nfs
"""
UNDELAYED_DISK = "umount /srv/nfs; dmsetup remove slow"
# After its grace period of ten seconds; NFS 3 asks rpcbind where mountd is
SERVER = """
modprobe nfsd; modprobe nfs
nsenter --net=/run/netns/server unshare --mount bash -c '
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib/nfs; mkdir -p /run/rpcbind /run/sendsigs.omit.d
cd /var/lib/nfs; mkdir sm sm.bak v4recovery nfsdcltrack; touch etab rmtab
mount -t nfsd nfsd /proc/fs/nfsd; rpcbind -w; echo 10 > /proc/fs/nfsd/nfsv4gracetime
exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=1,{sync} "*:/srv/nfs"
rpc.nfsd {threads}; rpc.mountd; sleep 12' < /dev/null > /root/server.log 2>&1
"""
# In its own mount namespace: elsewhere rpc.nfsd would mount the threads of this network, and leave them there
UNSERVER = "nsenter -t $(pgrep -x rpc.mountd) -n -m rpc.nfsd 0; pkill -x rpc.mountd; pkill -x rpcbind"
RDMA_SERVER = """
modprobe svcrdma; modprobe xprtrdma; modprobe nfsd
exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=1,sync "*:/srv/nfs"
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
echo 10 > /proc/fs/nfsd/nfsv4gracetime; rpc.mountd -N 2 -N 3; rpc.nfsd -N 3 --rdma=20049 8; sleep 12
mount -t nfs -o vers=4.2,proto=rdma,port=20049 "$(hostname -I | cut -d' ' -f1):/srv/nfs" /mnt/ckpt
"""
RDMA_UNSERVER = "umount /mnt/ckpt; rpc.nfsd 0; pkill -x rpc.mountd || true; exportfs -ua"
# Another client of the same server, whose small writes each wait for the disk
LOAD = """
nsenter --net=/run/netns/server unshare --mount --uts bash -c '
hostname other; mkdir -p /srv/other; mount -t nfs -o vers=4.2 127.0.0.1:/srv/nfs /srv/other
while :; do dd if=/dev/zero of=/srv/other/other bs=64k count=8 oflag=direct conv=notrunc status=none; done
' < /dev/null > /dev/null 2>&1 & echo $! > /root/load.pid; sleep 1
"""
UNLOAD = "kill $(cat /root/load.pid); while pgrep -x dd > /dev/null; do sleep 0.5; done; sleep 1"
SECOND_LINK = """
ip link add v2 type veth peer name v3 netns server; ip addr add 10.9.1.1/24 dev v2; ip link set v2 up
ip -n server addr add 10.9.1.2/24 dev v3; ip -n server link set v3 up
"""
TARGET = """
modprobe nvmet-{transport}; modprobe nvme-{transport}; mkdir -p /mnt/ckpt
cd /sys/kernel/config/nvmet; mkdir subsystems/ckpt; echo 1 > subsystems/ckpt/attr_allow_any_host
mkdir subsystems/ckpt/namespaces/1; echo {disk} > subsystems/ckpt/namespaces/1/device_path
echo 1 > subsystems/ckpt/namespaces/1/enable; port=0
for address in {addresses}; do
  port=$((port + 1)); mkdir ports/$port; echo $address > ports/$port/addr_traddr
  echo {transport} > ports/$port/addr_trtype; echo 4420 > ports/$port/addr_trsvcid; echo ipv4 > ports/$port/addr_adrfam
  {where} ln -s "$PWD/subsystems/ckpt" ports/$port/subsystems/ckpt
  nvme connect -t {transport} -a $address -s 4420 -n ckpt -k 3 > /dev/null
done
sleep 2; device=/dev/$(ls /sys/class/nvme-subsystem/*/ | grep -x 'nvme[0-9]*n1' | sort | tail -1)
mkfs.ext4 -q -F -E nodiscard "$device"; mount "$device" /mnt/ckpt
"""
UNTARGET = """
umount /mnt/ckpt; nvme disconnect -n ckpt > /dev/null; cd /sys/kernel/config/nvmet; rm ports/*/subsystems/ckpt
rmdir ports/* subsystems/ckpt/namespaces/1 subsystems/ckpt; cd
"""
RXE = "modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0"
UNRXE = "rdma link del rxe0; sleep 1"
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
ISCSI = """
modprobe -a iscsi_target_mod target_core_iblock iscsi_tcp dm-multipath dm-round-robin
mkdir -p /mnt/ckpt; cd /sys/kernel/config/target; mkdir -p core/iblock_0/ckpt
echo udev_path={disk} > core/iblock_0/ckpt/control; echo 1 > core/iblock_0/ckpt/enable
mkdir -p iscsi/iqn.2026-11.test:ckpt/tpgt_1/lun/lun_0; group=$PWD/iscsi/iqn.2026-11.test:ckpt/tpgt_1
ln -s $PWD/core/iblock_0/ckpt $group/lun/lun_0/port; echo 0 > $group/attrib/authentication
for name in generate_node_acls cache_dynamic_acls; do echo 1 > $group/attrib/$name; done
echo 0 > $group/attrib/demo_mode_write_protect
nsenter --net=/run/netns/server mkdir {portals}; echo 1 > $group/enable; cd
systemctl start iscsid; iscsiadm -m discovery -t st -p 10.9.0.2 > /dev/null
iscsiadm -m node -l > /dev/null; sleep 3; disks=$(cd /sys/block; ls -d sd*)
"""
ONE_DISK = "device=/dev/$disks"
ALL_PATHS = """
table=; for disk in $disks; do table="$table $(cat /sys/block/$disk/dev) 1"; done; set -- $disks
echo "0 $(blockdev --getsz /dev/$1) multipath 0 0 1 1 round-robin 0 $# 1$table" | dmsetup create paths
device=/dev/mapper/paths
"""
ON_DISK = "mkfs.ext4 -q -F -E nodiscard $device; mount $device /mnt/ckpt"
UNISCSI = """
umount /mnt/ckpt; test ! -e /dev/mapper/paths || dmsetup remove paths
iscsiadm -m node -u > /dev/null; iscsiadm -m node -o delete; cd /sys/kernel/config/target
group=iscsi/iqn.2026-11.test:ckpt/tpgt_1; echo 0 > $group/enable; rm $group/lun/lun_0/port; rmdir $group/lun/lun_0
rmdir $group/np/*; rmdir $group ${group%/*} core/iblock_0/ckpt; cd
"""
# In a mount namespace, for its state
SMB = """
modprobe cifs
nsenter --net=/run/netns/server unshare --mount bash -c '
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib/samba; mkdir -p /run/samba /var/lib/samba/private
printf "[ckpt]\\npath = /srv/nfs\\nread only = no\\n" > /etc/samba/smb.conf
printf "secret\\nsecret\\n" | smbpasswd -s -a root; smbd -D; sleep 3' < /dev/null > /root/server.log 2>&1
mount -t cifs //10.9.0.2/ckpt /mnt/ckpt -o vers=3.1.1,ip=10.9.0.2,username=root,password=secret
"""
UNSMB = "umount /mnt/ckpt; pkill -x smbd; sleep 2"
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
    meanwhile: str = ""  # a script that runs beside the job
    hit: frozenset[int] = frozenset({0, 1, 2, 3})  # which of the saves the fault is in


def local(storage: str, device: str, make: str) -> Scenario:
    """Return a file system on a drive."""
    return Scenario(storage, f"{make} {device}; mkdir -p /mnt/ckpt; mount {device} /mnt/ckpt", "umount /mnt/ckpt")


def nfs(
    storage: str, options: str, sync: str = "sync", *, disk: str = DISK, undisk: str = UNDISK, threads: int = 8
) -> Scenario:
    """Return an export of a drive, on another network."""
    mount = f"mount -t nfs -o {options} 10.9.0.2:/srv/nfs /mnt/ckpt"
    prepare = f"{disk}\n{LINK}\n{SERVER.format(sync=sync, threads=threads)}\n{mount}"
    return Scenario(storage, prepare, f"umount /mnt/ckpt\n{UNSERVER}\n{UNLINK}\n{undisk}")


def delayed(device: str, write_ms: int, flush_ms: int) -> str:
    """Return how /dev/mapper/slow is made of a drive."""
    parts = " ".join(f"{device} 0 {milliseconds}" for milliseconds in (0, write_ms, flush_ms))
    return f'modprobe dm-delay; echo "0 $(blockdev --getsz {device}) delay {parts}" | dmsetup create slow'


def target(storage: str, disk: str = "/dev/nvme2n1", addresses: str = "10.9.0.2") -> Scenario:
    """Return a drive behind NVMe over TCP, on another network."""
    where = "nsenter --net=/run/netns/server"
    export = TARGET.format(transport="tcp", disk=disk, addresses=addresses, where=where)
    return Scenario(storage, f"{LINK}{SECOND_LINK}{export}", f"{UNTARGET}{UNLINK}")


def iscsi(storage: str, disk: str = "/dev/nvme2n1", addresses: str = "10.9.0.2", device: str = ONE_DISK) -> Scenario:
    """Return a drive behind iSCSI, on another network."""
    portals = " ".join(f"$group/np/{address}:3260" for address in addresses.split())
    prepare = f"{LINK}{SECOND_LINK}{ISCSI.format(disk=disk, portals=portals)}{device}\n{ON_DISK}"
    return Scenario(storage, prepare, f"{UNISCSI}{UNLINK}")


def rdma_target(disk: str) -> Scenario:
    """Return a drive behind NVMe over RDMA, of this host itself."""
    address = "$(hostname -I | cut -d' ' -f1)"
    export = TARGET.format(transport="rdma", disk=disk, addresses=address, where="")
    return Scenario("NVMe over RDMA (rxe), ext4", f"{RXE}{export}", f"{UNTARGET}{UNRXE}", mib=48)


def with_link(scenario: Scenario, fault: str, how: str) -> Scenario:
    """Return a scenario whose link has a fault."""
    prepare, undo = f"{scenario.prepare}\n{how}", f"{UNSHAPED}\n{scenario.undo}"
    return replace(scenario, prepare=prepare, undo=undo, fault=fault, limit="network", mib=24)


def slow_target(scenario: Scenario) -> Scenario:
    """Return a scenario whose target writes slowly."""
    prepare = f"{delayed('/dev/nvme2n1', 1000, 1000)}\n{scenario.prepare}"
    undo = f"{scenario.undo}\ndmsetup remove slow"
    fault = "a write at the target takes 1 s more"
    return replace(scenario, prepare=prepare, undo=undo, fault=fault, limit="server", mib=24)


def busy_server(scenario: Scenario) -> Scenario:
    """Return a scenario whose server is kept busy by another client."""
    undo = f"{UNLOAD}\n{scenario.undo}"
    fault = "one nfsd thread, a disk 60 ms slower, another client"
    return replace(scenario, prepare=f"{scenario.prepare}\n{LOAD}", undo=undo, fault=fault, limit="server", mib=24)


def lost_paths(scenario: Scenario, fault: str, *links: str, seconds: int) -> Scenario:
    """Return a scenario whose links lose every packet from the second save on, for a time."""
    cut, mend = (
        "; ".join(f"tc qdisc {verb} dev {link} root {what}" for link in links)
        for verb, what in (("add", "netem loss 100%"), ("del", ""))
    )
    meanwhile = f"until [ -e /mnt/ckpt/step_000200.ckpt.tmp ]; do sleep 0.1; done; {cut}; sleep {seconds}; {mend}"
    undo = f"{mend}; sleep 3\n{scenario.undo}"
    return replace(scenario, undo=undo, fault=fault, limit="network", meanwhile=meanwhile, hit=frozenset({1}), mib=48)


NFS = nfs("NFS 4.2 over TCP", "vers=4.2")
NVME_TCP = target("NVMe over TCP, ext4")
TWO_PATHS = target("NVMe over TCP, two paths, ext4", addresses="10.9.0.2 10.9.1.2")
SLOW_WRITES, SLOW_FLUSHES = delayed("/dev/nvme0n1", 60, 60), delayed("/dev/nvme0n1", 0, 2000)
SLOW_DISK = nfs("NFS 4.2 over TCP", "vers=4.2", disk=DELAYED_DISK.format(delay=SLOW_WRITES), undisk=UNDELAYED_DISK)
SLOW_COMMIT = nfs("NFS 4.2 over TCP", "vers=4.2", disk=DELAYED_DISK.format(delay=SLOW_FLUSHES), undisk=UNDELAYED_DISK)
FEW_THREADS = nfs(
    "NFS 4.2 over TCP", "vers=4.2", disk=DELAYED_DISK.format(delay=SLOW_WRITES), undisk=UNDELAYED_DISK, threads=1
)
NCONNECT = nfs("NFS 4.1 over TCP, nconnect 4, async", "vers=4.1,nconnect=4", "async")
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
    "nfs42-slow-commit": replace(SLOW_COMMIT, fault="a flush of its disk takes 2 s more", limit="server", mib=24),
    "nfs42-one-thread": busy_server(FEW_THREADS),
    "nfs41-nconnect": NCONNECT,
    "nfs41-nconnect-shaped": with_link(NCONNECT, "link of 40 Mbit/s", SHAPED),
    "nfs3": nfs("NFS 3 over TCP", "vers=3,nolock"),
    "nfs42-rdma": Scenario(
        "NFS 4.2 over RDMA (rxe)", f"{DISK}\n{RXE}\n{RDMA_SERVER}", f"{RDMA_UNSERVER}\n{UNRXE}\n{UNDISK}"
    ),
    "nvme-tcp-slow": slow_target(target(NVME_TCP.storage, "/dev/mapper/slow")),
    "nvme-tcp-path": lost_paths(TWO_PATHS, "one path lost", "v0", seconds=60),
    "nvme-tcp-paths": lost_paths(TWO_PATHS, "both lost for 10 s", "v0", "v2", seconds=10),
    "nvme-rdma": rdma_target("/dev/nvme2n1"),
    "iscsi": iscsi("iSCSI, ext4"),
    "iscsi-slow": replace(slow_target(iscsi("iSCSI, ext4", "/dev/mapper/slow")), limit="device"),
    "iscsi-paths": iscsi("dm-multipath of two iSCSI paths, ext4", addresses="10.9.0.2 10.9.1.2", device=ALL_PATHS),
    "smb": Scenario("SMB 3.1.1 (Samba)", f"{DISK}\n{LINK}{SMB}", f"{UNSMB}\n{UNLINK}\n{UNDISK}"),
    "nvme-rdma-slow": slow_target(rdma_target("/dev/mapper/slow")),
}
