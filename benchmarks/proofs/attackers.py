"""The programs of attackers, each of which prints first how often it did what it does: see attacks.py.

They are started by /usr/bin/python3 with the seconds, the ports of the agents and their pids as arguments, after HEAD.
"""

from __future__ import annotations

HEAD = """
import contextlib, ctypes, json, os, resource, signal, socket, subprocess, sys, threading, time
until, ports, pids, n = time.monotonic() + float(sys.argv[1]), eval(sys.argv[2]), eval(sys.argv[3]), 0
numpy = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4096,), }".ljust(117) + b"\\n"
numpy = b"\\x93NUMPY\\x01\\x00\\x76\\x00" + numpy
on = lambda: time.monotonic() < until
def put(path, data):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY); os.write(fd, data); os.close(fd)
"""
SMALL_FILES = """
os.mkdir("checkpoint-1")
for n in range(1, 20001): put(f"checkpoint-1/p{n}.bin", numpy + bytes(4096))
for m in range(1, 20001): open(f"checkpoint-1/p{m}.bin", "rb").read()
while on(): time.sleep(0.1)
print(n, "files written and read")
"""
SLOW_HEADER = """
head = b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nAccept-Encoding: gzip" + b" " * 8000 + b"x\\r\\n\\r\\n"
def client(port):
    global n
    while on():
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as s:
                s.sendall(head); s.settimeout(20); s.recv(100); n += 1
        except OSError: time.sleep(0.05)
for port in ports * 8: threading.Thread(target=client, args=(port,), daemon=True).start()
time.sleep(float(sys.argv[1])); print(n, "requests answered or refused")
"""
HALF_OPEN = """
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = []
while on():
    for port in ports:
        for _ in range(100):  # that never end their request
            s = socket.socket(); s.settimeout(0.2)
            try: s.connect(("127.0.0.1", port)); s.sendall(b"GET /metrics HTTP/1.1\\r\\nX-Slow: ")
            except OSError: pass
            else: n += 1
            held.append(s)
    del held[:-900]
print(n, "connections whose request never ends")
"""
FORKS = """
while on():
    child = os.fork()
    if not child: os._exit(0)
    os.waitpid(child, 0); n += 1
print(n, "forks")
"""
BOMB = """
kids, most = [], 1500
while len(kids) < most:
    child = os.fork()
    if not child:
        put(f"ckpt_{len(kids)}.npy", numpy); signal.pause()
    kids.append(child)
while on(): time.sleep(0.1)
for child in kids: os.kill(child, 9)
print(len(kids), "children that sleep, each of which wrote a file")
"""
EXECS = """
while on(): os.waitpid(os.posix_spawn("/bin/true", ["true"], {"RANK": "0"}), 0); n += 1
print(n, "execs of a process that looks like a rank")
"""
ARGUMENTS = """
big, code = ["--out=" + "/x" * 50000] * 15, "open('ckpt.npy', 'wb').write(bytes(1 << 20))"
while on(): os.waitpid(os.posix_spawn("/usr/bin/python3", ["python3", "-c", code, *big], {"RANK": "0"}), 0); n += 1
print(n, "ranks with 1.5 MB of arguments")
"""
THREADS = """
threading.stack_size(65536); hold = threading.Event(); fd = os.open("ckpt.npy", os.O_CREAT | os.O_WRONLY)
for _ in range(2000): threading.Thread(target=hold.wait, daemon=True).start()
while on():
    one = threading.Thread(target=os.write, args=(fd, bytes(4096))); one.start(); one.join(); n += 1
print(n, "threads that write one file, one after the other, beside 2,000 that sleep", flush=True); os._exit(0)
"""
SAME_PID = """
child = os.fork()
if not child: os._exit(0)
os.waitpid(child, 0); wanted = child
while on():
    with open("/proc/sys/kernel/ns_last_pid", "w") as last: last.write(str(wanted - 1))
    child = os.fork()
    if not child: put(f"ckpt_{n % 7}.npy", numpy + bytes(2 << 20)); os._exit(0)
    os.waitpid(child, 0); n += child == wanted
print(n, "processes of the same pid, each of which saved and ended")
"""
DESCRIPTORS = """
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
each, kids = min(most - 100, 17000), []
for k in range(50000 // each + 1):
    child = os.fork()
    if not child:
        held = [os.open(f"held_{k}_{i}.npy", os.O_CREAT | os.O_WRONLY) for i in range(each)]; put(f"ready_{k}", b"x")
        while True:
            for fd in held[::100]: os.write(fd, bytes(4096))
            time.sleep(0.3)
    kids.append(child)
while not all(os.path.exists(f"ready_{k}") for k in range(len(kids))): time.sleep(0.05)
until = time.monotonic() + float(sys.argv[1])
while on(): time.sleep(0.1)
n = sum(len(os.listdir(f"/proc/{child}/fd")) for child in kids)
for child in kids: os.kill(child, 9)
print(n, "open files, 1 % of them written three times a second")
"""
FILES = """
os.mkdir("step_1")
while n < 100000: put(f"step_1/part_{n}.npy", numpy + bytes(4096)); n += 1
while on(): time.sleep(0.1)
print(n, "files of one save")
"""
MAPPINGS = """
c = ctypes.CDLL(None); fd = os.open("w.bin", os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 4096 * 30000)
for i in range(30000): c.mmap(*map(ctypes.c_long, (0, 4096, 3, 1, fd, 4096 * (i * 2 % 30000))))
while on(): put("ckpt.npy", numpy + bytes(65536)); time.sleep(0.01)
print(len(open("/proc/self/maps").readlines()), "mappings of a process that saves")
"""
URING = """
job = ["--name=u", "--ioengine=io_uring", "--rw=randwrite", "--bs=4k", "--size=128m", "--iodepth=128", "--numjobs=4",
    "--time_based", "--runtime=" + sys.argv[1], "--filename_format=ckpt_$jobnum.npy", "--output-format=json"]
told = subprocess.run(["fio", *job], stdout=-1, check=True, text=True).stdout
print(sum(one["write"]["total_ios"] for one in json.loads(told[told.index("{"):])["jobs"]), "writes by io_uring")
"""
NAMESPACES = """
code = '''mount -t tmpfs none /mnt && for i in 1 2 3 4 5 6 7 8; do mkdir -p /mnt/$i && mount -t tmpfs none /mnt/$i; done
head -c 3000000 /dev/zero >/mnt/3/model.safetensors && echo good'''
unshare = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c"]
crowd = subprocess.Popen([*unshare[:-3], "sh", "-c", '''mount -t tmpfs none /mnt; i=0
while [ $i -lt 1000 ]; do mkdir /mnt/$i; mount --bind /tmp /mnt/$i || break; i=$((i+1)); done; sleep 60'''])
while on(): n += subprocess.run([*unshare, code], stdout=-1).stdout == b"good\\n"
crowd.kill(); print(n, "saves in a user, mount and pid namespace of their own, beside one with 1,000 mounts")
"""
RENAMES = """
while on():
    put("t.npy", numpy + bytes(4096)); os.rename("t.npy", f"ckpt_{n % 5000}.npy"); n += 1
    if n % 3 == 0: os.unlink(f"ckpt_{(n - 1) % 5000}.npy")
print(n, "files written, renamed or deleted")
"""
SWAPS = """
while on():
    for other in ("/dev/zero", "/proc/self/mem", ""):
        path = f"checkpoint-{n % 9}/model.safetensors"; os.makedirs(os.path.dirname(path), exist_ok=True)
        put(path, bytes(3 << 20)); os.unlink(path)
        os.symlink(other, path) if other else os.mkfifo(path)
        time.sleep(0.1); os.unlink(path); n += 1
print(n, "saves that become a FIFO, a device or /proc/self/mem")
"""
STOPPED = """
for pid in pids: os.kill(pid, signal.SIGSTOP)
while on(): time.sleep(0.1)
n = sum(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "T" for pid in pids)
for pid in pids: os.kill(pid, signal.SIGCONT)
time.sleep(4); print(n, "recorders stopped for the while")
"""
