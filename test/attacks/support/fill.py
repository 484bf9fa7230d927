"""
Fills memory or the disk in one way, until it is refused or the time is up: `fill.py WAY SECONDS [NUMBER]`.
Prints what it got: {"way": …, "bytes": …, "count": …, "error": …}.
"""
import ctypes, errno, fcntl, json, mmap, os, resource, sys, time

way, seconds = sys.argv[1], float(sys.argv[2])
number = int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 40
end = time.monotonic() + seconds
MiB = 1 << 20
PIECE = os.urandom(MiB)
HOME = os.path.expanduser("~")
got = {"way": way, "bytes": 0, "count": 0}
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def into(fd):
    got["bytes"] += os.write(fd, PIECE)


def heap():
    held.append(bytearray(PIECE))
    got["bytes"] += MiB


def page_tables():
    """
    One page in each 2 MiB: on a kernel of its own as much of page tables as of memory. gVisor has none inside;
    those on the host are about a seventh of the memory and are bounded by the cgroup.
    """
    region = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held.append(region)
    for offset in range(0, 1 << 30, 2 * MiB):
        region[offset] = 1
        got["count"] += 1
    got["bytes"] = 4096 * got["count"] + own_page_tables()


def own_page_tables():
    with open("/proc/self/status") as status:
        return sum(1024 * int(line.split()[1]) for line in status if line.startswith("VmPTE:"))


def dentries():
    """Names that are looked up and are not there."""
    for _ in range(1000):
        got["count"] += 1
        os.path.exists(f"{HOME}/{got['count']}{'n' * 200}")


def pipes():
    ends = os.pipe()
    held.append(ends)
    os.set_blocking(ends[1], False)
    try:
        while True:
            got["bytes"] += os.write(ends[1], PIECE)
    except BlockingIOError:
        pass


def fallocate():
    os.posix_fallocate(target(), got["bytes"], 64 * MiB)
    got["bytes"] += 64 * MiB


def holes():
    """A page in each of many holes."""
    os.pwrite(target(), PIECE[:65536], got["count"] * 64 * MiB)
    got["count"] += 1
    got["bytes"] += 65536


def hard_links():
    os.makedirs(f"{HOME}/links/{got['count'] // 1000}", exist_ok=True)
    if got["count"] == 0:
        open(f"{HOME}/links/one", "w").close()
    os.link(f"{HOME}/links/one", f"{HOME}/links/{got['count'] // 1000}/{got['count']}{'l' * 200}")
    got["count"] += 1


def deleted():
    if not held:
        held.append(target())
        os.unlink(f"{HOME}/{way}")
    into(held[0])


def attributes():
    path = f"{HOME}/attribute-{got['count']}"
    open(path, "w").close()
    for name in range(3):
        os.setxattr(path, f"user.x{name}", PIECE[:3500])
        got["bytes"] += 3500
    got["count"] += 1


def empty_files():
    directory = f"{HOME}/empty/{got['count'] // 1000}"
    os.makedirs(directory, exist_ok=True)
    os.close(os.open(f"{directory}/{got['count']}", os.O_CREAT))
    got["count"] += 1


def reflinks():
    """Clones of one file, each of which is then written to."""
    if not held:
        held.append(target())
        for _ in range(16):
            os.write(held[0], PIECE)
        os.fsync(held[0])
    copy = os.open(f"{HOME}/clone-{got['count']}", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.ioctl(copy, 0x40049409, held[0])
    except OSError as error:
        if error.errno in (errno.EDQUOT, errno.ENOSPC):
            raise
        got["error"] = "no reflink"
    for offset in range(16):
        got["bytes"] += os.pwrite(copy, PIECE, offset * MiB)
    os.fsync(copy)
    os.close(copy)
    got["count"] += 1


def target():
    return held[0] if held else os.open(f"{HOME}/{way}", os.O_CREAT | os.O_RDWR)


def shm():
    if not held:
        held.append(os.open("/dev/shm/filled", os.O_CREAT | os.O_RDWR))
    into(held[0])


def memfd():
    if not held:
        held.append(os.memfd_create("filled"))
    into(held[0])


try:
    while time.monotonic() < end and got["count"] < number:
        globals()[way]()
except (OSError, MemoryError) as error:
    got["error"] = errno.errorcode.get(getattr(error, "errno", 0) or 0, type(error).__name__)
if way in ("holes", "fallocate", "deleted"):
    os.sync()
print(json.dumps(got), flush=True)
# What is held is held for a while.
time.sleep(1)
