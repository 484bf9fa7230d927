/**
 * Which system calls the processes of a sandbox may make, for runtimes that share the host's kernel.
 *
 * A list of what is allowed. What is known to change the machine is refused with EPERM, as a program without
 * the right would see it; everything else does not exist (ENOSYS), so that programs fall back as they do on
 * older kernels. Only the machine's own architecture is listed: each further one makes loading the filter
 * several milliseconds slower, and its calls are refused as a whole.
 */
export interface SeccompRule {
  names: string[];
  action: 'SCMP_ACT_ALLOW' | 'SCMP_ACT_ERRNO';
  errnoRet?: number;
  args?: {
    index: number;
    value: number;
    valueTwo?: number;
    op: 'SCMP_CMP_EQ' | 'SCMP_CMP_NE' | 'SCMP_CMP_GT' | 'SCMP_CMP_MASKED_EQ';
  }[];
}

export interface Seccomp {
  defaultAction: 'SCMP_ACT_ERRNO';
  defaultErrnoRet: number;
  architectures: string[];
  syscalls: SeccompRule[];
}

const EPERM = 1;
const ENOSYS = 38;
const EPROTONOSUPPORT = 93;
const EAFNOSUPPORT = 97;

const words = (text: string) => text.trim().split(/\s+/);

/**
 * Missing on purpose: `io_setup` and `mq_open`. The kernel counts AIO events for the whole machine and bytes
 * of message queues for the user that made all sandboxes, so that one sandbox could use up what all have.
 */
const ALLOWED = words(`
  accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chroot clock_getres clock_gettime
  clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
  epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group
  faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr
  flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv
  futex_wake futimesat get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid
  getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid
  getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr inotify_add_watch inotify_init
  inotify_init1 inotify_rm_watch ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen
  listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier memfd_create memfd_secret
  mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap modify_ldt mprotect mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
  nanosleep newfstatat open openat openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
  pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev
  pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
  remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
  rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
  sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
  sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select
  semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address
  setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit
  setsid setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice
  stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
  timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask
  uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
`);

const REFUSED = words(`
  acct add_key bpf clock_adjtime clock_settime delete_module fanotify_init fanotify_mark finit_module fsconfig fsmount
  fsopen fspick init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind migrate_pages mount
  mount_setattr move_mount move_pages name_to_handle_at open_by_handle_at open_tree perf_event_open pivot_root
  process_madvise quotactl quotactl_fd reboot request_key set_mempolicy set_mempolicy_home_node setdomainname sethostname
  setns settimeofday swapoff swapon syslog umount2 unshare userfaultfd vhangup adjtimex
`);

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET. */
const NEW_NAMESPACE = 0x7e020000;

const AF_UNIX = 1;
const AF_INET = 2;
const AF_INET6 = 10;
const AF_NETLINK = 16;

/** The type of a socket without the flags that go with it. */
const SOCK_TYPE_MASK = 0xf;
/** SOCK_STREAM, SOCK_DGRAM, and SOCK_RAW, which the kernel refuses for want of the right. */
const DEFAULT_PROTOCOL_TYPES = [1, 2, 3];
/** ICMP, TCP, UDP, ICMPv6, and MPTCP, which Go asks for. */
const INTERNET_PROTOCOLS = [1, 6, 17, 58, 262];
/**
 * Routes and addresses, as `getifaddrs()` reads them; sockets, as `ss` lists them; events of devices, of
 * which there are none.
 */
const NETLINK_PROTOCOLS = [0, 4, 15];
/** The log of the kernel's audit. Programs that use PAM fail unless they read that the kernel has none. */
const NETLINK_AUDIT = 9;
/**
 * Packet rules. The guest needs them once, before it runs anything, and then refuses them to itself and
 * everything that it starts.
 */
const NETLINK_NETFILTER = 12;

/** Linux, Linux with a 32 bit layout, without address randomisation (debuggers), and "tell which". */
const PERSONALITIES = [0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff];

const ARCHITECTURES: Partial<Record<NodeJS.Architecture, string>> = {
  x64: 'SCMP_ARCH_X86_64',
  arm64: 'SCMP_ARCH_AARCH64',
  riscv64: 'SCMP_ARCH_RISCV64',
};

/** Undefined for an architecture that we have no name for. */
export function seccompProfile({
  architecture = process.arch,
  redirects = false,
}: { architecture?: NodeJS.Architecture; redirects?: boolean | undefined } = {}): Seccomp | undefined {
  const name = ARCHITECTURES[architecture];
  if (name === undefined) return undefined;
  return {
    defaultAction: 'SCMP_ACT_ERRNO',
    defaultErrnoRet: ENOSYS,
    architectures: [name],
    syscalls: [
      { names: ALLOWED, action: 'SCMP_ACT_ALLOW' },
      { names: REFUSED, action: 'SCMP_ACT_ERRNO', errnoRet: EPERM },
      // Its flags are in memory, where a filter cannot look; the C library then uses clone.
      { names: ['clone3'], action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
      {
        names: ['clone'],
        action: 'SCMP_ACT_ALLOW',
        args: [{ index: 0, value: NEW_NAMESPACE, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }],
      },
      ...socketRules(redirects ? [...NETLINK_PROTOCOLS, NETLINK_NETFILTER] : NETLINK_PROTOCOLS),
      ...ioctlRules(),
      ...PERSONALITIES.map((value) => allowValue('personality', value)),
    ],
  };
}

function allowValue(syscall: string, value: number): SeccompRule {
  return { names: [syscall], action: 'SCMP_ACT_ALLOW', args: [{ index: 0, value, op: 'SCMP_CMP_EQ' }] };
}

/**
 * Families and protocols by name: vsock would reach the machine's own hypervisor, others parts of the kernel
 * that few look after. A request for one that is not loaded makes the kernel load its module, even where it
 * then refuses.
 */
function socketRules(netlink: readonly number[]): SeccompRule[] {
  const allow = (...args: SeccompRule['args'] & object): SeccompRule => ({
    names: ['socket'],
    action: 'SCMP_ACT_ALLOW',
    args,
  });
  const family = (value: number) => ({ index: 0, value, op: 'SCMP_CMP_EQ' as const });
  const type = (value: number) => ({
    index: 1,
    value: SOCK_TYPE_MASK,
    valueTwo: value,
    op: 'SCMP_CMP_MASKED_EQ' as const,
  });
  const protocol = (value: number) => ({ index: 2, value, op: 'SCMP_CMP_EQ' as const });
  const internet = [AF_INET, AF_INET6].flatMap((name) => [
    ...DEFAULT_PROTOCOL_TYPES.map((kind) => allow(family(name), type(kind), protocol(0))),
    ...INTERNET_PROTOCOLS.map((number) => allow(family(name), protocol(number))),
  ]);
  const refuse = (syscall: string, value: number, op: 'SCMP_CMP_GT' | 'SCMP_CMP_NE'): SeccompRule => ({
    names: [syscall],
    action: 'SCMP_ACT_ERRNO',
    errnoRet: EAFNOSUPPORT,
    args: [{ index: 0, value, op }],
  });
  return [
    allow(family(AF_UNIX)),
    ...internet,
    ...netlink.map((number) => allow(family(AF_NETLINK), protocol(number))),
    {
      names: ['socket'],
      action: 'SCMP_ACT_ERRNO',
      errnoRet: EPROTONOSUPPORT,
      args: [family(AF_NETLINK), protocol(NETLINK_AUDIT)],
    },
    refuse('socket', AF_NETLINK, 'SCMP_CMP_GT'),
    // Pairs exist in that family alone.
    allowValue('socketpair', AF_UNIX),
    refuse('socketpair', AF_UNIX, 'SCMP_CMP_NE'),
  ];
}

/**
 * The kind of ioctl that btrfs has; three of them are every filesystem's: FICLONE, FICLONERANGE and
 * FIDEDUPERANGE.
 */
const BTRFS = 0x94;
const SHARED_WITH_BTRFS = [0x40049409, 0x4020940d, 0xc0189436];

/**
 * All ioctls but those of btrfs: making a subvolume needs no right, and what is written in one of its own
 * does not count against a sandbox's disk quota. A rule cannot say "not this kind", so there is one for each
 * bit in which another kind differs.
 */
function ioctlRules(): SeccompRule[] {
  const otherKinds = Array.from({ length: 8 }, (_, bit) => {
    const mask = 1 << (8 + bit);
    return { index: 1, value: mask, valueTwo: ~(BTRFS << 8) & mask, op: 'SCMP_CMP_MASKED_EQ' as const };
  });
  const shared = SHARED_WITH_BTRFS.map((value) => ({ index: 1, value, op: 'SCMP_CMP_EQ' as const }));
  return [...otherKinds, ...shared].map((condition) => ({
    names: ['ioctl'],
    action: 'SCMP_ACT_ALLOW',
    args: [condition],
  }));
}
