"""What code in a sandbox tries against its walls. Prints one JSON object: what was tried, and "ok" or the error.

Runs inside, by the tests of isolation: `python3 -c <this> <group> [argument]`. System calls have the numbers of x86-64.
"""
import ctypes, errno, json, os, resource, signal, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
said = {}


def name(number):
    return errno.errorcode.get(number, str(number))


def wide(args):
    """Whole registers, also for those that are passed on the stack."""
    return [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]


def call(label, number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *wide(args))
    said[label] = 'ok' if result >= 0 else name(ctypes.get_errno())
    return result


def attempt(label, work):
    try:
        work()
        said[label] = 'ok'
    except OSError as error:
        said[label] = name(error.errno)


def in_child(label, work):
    """In a process of its own, for what changes the one who tries it."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
        except BaseException:
            os._exit(255)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said[label] = 'ok' if code == 0 else name(code)


def checked(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *wide(args))
    if result < 0:
        raise OSError(ctypes.get_errno(), 'refused')
    return result


def families():
    """Those that are there, by the plain socket and by the pair."""
    sockets, pairs = set(), set()
    for family in range(46):
        for kind in (1, 2, 3, 5):
            for protocol in (0, 1, 16):
                fd = libc.socket(family, kind, protocol)
                if fd >= 0:
                    sockets.add(family)
                    os.close(fd)
            both = (ctypes.c_int * 2)()
            if libc.socketpair(family, kind, 0, both) == 0:
                pairs.add(family)
                os.close(both[0]), os.close(both[1])
    said.update(sockets=sorted(sockets), pairs=sorted(pairs))
    for label, protocol in (('sctp', 132), ('dccp', 33), ('udplite', 136)):
        attempt(label, lambda protocol=protocol: socket.socket(2, 1, protocol))
    for label, protocol in (('nfnetlink', 12), ('xfrm', 6), ('crypto', 21), ('generic', 16)):
        attempt(label, lambda protocol=protocol: socket.socket(16, 3, protocol))


NAMESPACES = {'mnt': 0x20000, 'cgroup': 0x2000000, 'uts': 0x4000000, 'ipc': 0x8000000, 'user': 0x10000000, 'pid': 0x20000000, 'net': 0x40000000, 'time': 0x80}


def kernel():
    """What would change or look into the machine."""
    for label, flag in NAMESPACES.items():
        in_child('unshare ' + label, lambda flag=flag: checked(272, flag))
        if label == 'time':
            continue
        pid = libc.syscall(56, ctypes.c_ulong(flag | signal.SIGCHLD), 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        said['clone ' + label] = 'ok' if pid > 0 else name(ctypes.get_errno())
        if pid > 0:
            os.waitpid(pid, 0)
        in_child('setns ' + label, lambda label=label: checked(308, os.open('/proc/1/ns/' + label, os.O_RDONLY), 0))
    call('mount', 165, b'x', b'/tmp', b'tmpfs', 0, None)
    call('bind mount', 165, b'/', b'/mnt', None, 0x1000, None)
    call('umount2', 166, b'/proc', 2)
    call('pivot_root', 155, b'/', b'/')
    call('open_tree', 428, -100, b'/', 1)
    call('move_mount', 429, -100, b'/', -100, b'/mnt', 0)
    call('fsopen', 430, b'tmpfs', 0)
    call('mount_setattr', 442, -100, b'/', 0, b'\0' * 32, 32)
    call('bpf', 321, 0, b'\0' * 64, 64)
    call('perf_event_open', 298, b'\0' * 128, 0, -1, -1, 0)
    call('userfaultfd', 323, 0)
    call('io_uring_setup', 425, 8, b'\0' * 128)
    call('keyctl', 250, 0, -3, 1)
    call('add_key', 248, b'user', b'x', b'y', 1, -4)
    call('request_key', 249, b'user', b'x', None, -4)
    call('init_module', 175, b'x', 1, b'')
    call('finit_module', 313, 0, b'', 0)
    call('kexec_load', 246, 0, 0, None, 0)
    call('open_by_handle_at', 304, -100, b'\0' * 128, 0)
    call('name_to_handle_at', 303, -100, b'/', b'\0' * 128, b'\0' * 8, 0)
    call('swapon', 167, b'/tmp', 0)
    call('quotactl', 179, 0, b'/dev/vda', 0, None)
    call('iopl', 172, 3)
    call('ioperm', 173, 0, 1, 1)
    call('acct', 163, b'/tmp/acct')
    call('syslog', 103, 3, b'\0' * 64, 64)
    call('settimeofday', 164, b'\0' * 16, None)
    call('sethostname', 170, b'x', 1)
    call('fanotify_init', 300, 0, 0)
    call('reboot', 169, 0xfee1dead, 672274793, 0, None)
    attempt('sysrq', lambda: open('/proc/sysrq-trigger', 'w'))
    attempt('core_pattern', lambda: open('/proc/sys/kernel/core_pattern', 'w'))
    attempt('oom_score_adj', lambda: os.write(os.open('/proc/1/oom_score_adj', os.O_WRONLY), b'-1000'))
    attempt('guest program', lambda: open('/run/cay-guest', 'r+b'))
    attempt('program of PID 1', lambda: open('/proc/1/exe', 'r+b'))
    attempt('cgroup', lambda: open('/run/cay/cgroup/cgroup.procs', 'w'))
    attempt('char device', lambda: os.mknod('/tmp/trial-c', 0o20666, os.makedev(1, 1)))
    attempt('block device', lambda: os.mknod('/tmp/trial-b', 0o60666, os.makedev(7, 0)))
    attempt('trusted attribute', lambda: os.setxattr('/tmp', 'trusted.x', b'y'))


def pid1():
    """What the guest holds and is, to look at and to write to."""
    attempt('mem', lambda: open('/proc/1/mem', 'r+b'))
    attempt('environ', lambda: open('/proc/1/environ').read())
    attempt('root', lambda: os.listdir('/proc/1/root/'))
    attempt('cwd', lambda: os.listdir('/proc/1/cwd/'))
    attempt('exe', lambda: os.readlink('/proc/1/exe'))
    attempt('fd', lambda: os.listdir('/proc/1/fd'))
    attempt('maps', lambda: open('/proc/1/maps').read(1))
    in_child('ptrace attach', lambda: checked(101, 16, 1, 0, 0))
    in_child('ptrace seize', lambda: checked(101, 0x4206, 1, 0, 0))
    local, remote = (ctypes.c_ulong * 2)(ctypes.addressof(said_buffer), 8), (ctypes.c_ulong * 2)(0x400000, 8)
    call('process_vm_readv', 310, 1, local, 1, remote, 1, 0)
    call('process_vm_writev', 311, 1, local, 1, remote, 1, 0)
    attempt('pidfd_getfd', lambda: checked(438, checked(434, 1, 0), 0, 0))


said_buffer = ctypes.create_string_buffer(64)


def descriptors():
    """Where the descriptors of all processes lead that can be seen, and whether one of them leads out of the root."""
    leads, escapes = set(), []
    home = os.stat('/')
    for pid in [entry for entry in os.listdir('/proc') if entry.isdigit() or entry == 'self']:
        try:
            numbers = os.listdir(f'/proc/{pid}/fd')
        except OSError:
            continue
        for number in numbers:
            path = f'/proc/{pid}/fd/{number}'
            try:
                leads.add(os.readlink(path).split(':')[0])
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
            except OSError:
                continue
            for _ in range(64):
                up = os.open('..', os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = up
            there = os.fstat(fd)
            if (there.st_dev, there.st_ino) != (home.st_dev, home.st_ino) and os.path.exists(f'/proc/self/fd/{fd}/boot'):
                escapes.append(path)
            os.close(fd)
    said.update(leads=sorted(leads), escapes=escapes)


def walk():
    """Reads and opens for writing all of /proc and /sys. The argument is a JSON list of words that must not be found."""
    words = [word.encode() for word in json.loads(sys.argv[2])]
    found, writable, read = [], [], 0
    for top in ('/proc', '/sys'):
        for directory, names, files in os.walk(top):
            if top == '/proc' and directory == '/proc':
                names[:] = [entry for entry in names if not entry.isdigit()]
            names[:] = [entry for entry in names if entry not in ('task', 'thread-self', 'map_files')]
            for entry in files:
                path = os.path.join(directory, entry)
                if entry in ('kmsg', 'trace_pipe', 'clear_refs'):
                    continue
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                    content = os.read(fd, 65536)
                    os.close(fd)
                    read += 1
                    if any(word in content for word in words):
                        found.append(path)
                except OSError:
                    pass
                if os.path.realpath(path).startswith(f'/proc/{os.getpid()}/'):
                    continue
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                    if not os.path.samestat(os.stat(path), os.stat('/dev/null')):
                        writable.append(path)
                except OSError:
                    pass
    said.update(found=found, writable=writable, read=read)
    said['sys'] = sorted(os.listdir('/sys'))
    said['masked'] = [path for path in MASKED if os.path.exists(path) and size(path)]


MASKED = ['/proc/' + entry for entry in ('kallsyms', 'modules', 'sched_debug', 'keys', 'timer_list', 'kcore', 'latency_stats', 'scsi', 'acpi', 'cmdline', 'diskstats', 'partitions', 'swaps', 'interrupts')] + ['/sys/fs/btrfs', '/sys/block', '/sys/module', '/sys/firmware', '/sys/kernel/debug', '/sys/class/block', '/sys/devices/virtual/block']


def size(path):
    try:
        return len(os.listdir(path)) if os.path.isdir(path) else len(open(path, 'rb').read(1))
    except OSError:
        return 0


def pairs_in_flight(most):
    """Descriptors that are under way in sockets nobody reads."""
    sent, held = 0, []
    while sent < most:
        a, b = socket.socketpair()
        a.setblocking(False)
        held.append((a, b))
        before = sent
        try:
            while sent < most:
                socket.send_fds(a, [b'x'], [0] * 250)
                sent += 250
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS or sent == before:
                return sent, held
    return sent, held


def take():
    """Takes as much as there is of all that the kernel counts, says how much, and holds it until standard input ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    held = []

    def until_refused(label, most, work):
        count = 0
        try:
            while count < most:
                held.append(work())
                count += 1
        except OSError as error:
            said[label + ' end'] = name(error.errno)
        said[label] = count

    until_refused('inotify', 2000, lambda: checked(253))
    until_refused('terminals', 5000, lambda: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
    call('io_setup', 206, 60000, ctypes.byref(ctypes.c_ulong(0)))
    call('mq_open', 240, b'trial', 0o102, 0o600, None)
    call('mlock', 149, ctypes.addressof(said_buffer), 64)
    until_refused('pipes', 1500, lambda: os.pipe())
    sent, sockets = pairs_in_flight(60000)
    said['descriptors in flight'] = sent
    print(json.dumps(said), flush=True)
    open('/tmp/trial-taken', 'w').close()
    sys.stdin.read()


def have():
    """A modest need of each, as a neighbour of one who takes."""
    attempt('inotify', lambda: [checked(253) for _ in range(40)])
    attempt('terminals', lambda: [os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY) for _ in range(40)])
    attempt('signals', lambda: checked(222, 0, None, ctypes.byref(ctypes.c_int(0))))
    sent, _ = pairs_in_flight(500)
    said['descriptors in flight'] = 'ok' if sent >= 500 else 'ETOOMANYREFS'
    import fcntl
    said['pipe bytes'] = min(fcntl.fcntl(os.pipe()[1], 1032) for _ in range(20))


def entries():
    """Other ways into the kernel than the system calls of the machine's own architecture."""
    import mmap
    in_child('x32', lambda: checked(0x40000000 | 39))
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')  # mov eax, getpid of i386; int 0x80; ret
    enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def old():
        result = enter()
        if result != os.getpid():
            raise OSError(-result if result < 0 else errno.ENOSYS, 'refused')

    in_child('i386', old)


def files():
    """Rights that a file would carry out of the sandbox, and what would keep it from being removed."""
    path = '/tmp/trial-file'
    open(path, 'w').close()
    attempt('file capability', lambda: os.setxattr(path, 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 21, 0, 0, 0)))
    fd = os.open(path, os.O_RDONLY)
    call('immutable', 16, fd, 0x40086602, ctypes.byref(ctypes.c_long(0x10)))
    directory = os.open('/tmp', os.O_RDONLY)
    for label, number in (('subvolume', 0x5000940E), ('snapshot', 0x50009417), ('tree search', 0xD0009411), ('quota', 0xC0109428)):
        call('btrfs ' + label, 16, directory, number, ctypes.create_string_buffer(b'\0' * 8 + b'trial', 8192))
        call('btrfs ' + label + ' with high bits', 16, directory, number | 1 << 40, ctypes.create_string_buffer(8192))


def trace():
    """As a user: traces whatever appears, for two seconds. Says of which users those were that could be traced."""
    import time
    owners, until = set(), time.time() + 2
    while time.time() < until:
        for pid in [int(entry) for entry in os.listdir('/proc') if entry.isdigit()]:
            if pid == os.getpid() or libc.ptrace(0x4206, pid, 0, 0) != 0:
                continue
            try:
                status = open(f'/proc/{pid}/status').read()
                owners.add(status.split('Uid:')[1].split()[0])
            except OSError:
                pass
            libc.ptrace(17, pid, 0, 0)
    said['owners'] = sorted(owners)


globals()[sys.argv[1]]()
if sys.argv[1] != 'take':
    print(json.dumps(said))
