/** The kernel, files and processes of the machine. */
import { blocked, type CaseWorld, type EnforcementCase, open, skipped } from '../enforcement-case.ts';

/** The call was let through to where it is carried out. */
const LET_THROUGH = /^(ok|EINVAL|EBUSY|EFAULT|ENOEXEC|errno 8|errno 15)/;

interface CallOptions {
  /** A kernel of the sandbox's own may allow it: it changes nothing of the machine's. */
  readonly ownKernel?: boolean;
  /** Errors that say that it was let through. */
  readonly through?: RegExp;
}

const call = (
  name: string,
  title: string,
  { ownKernel = false, through = /^ok/ }: CallOptions = {},
): EnforcementCase => ({
  id: `kernel.${name}`,
  title,
  async run({ probe, kernel }) {
    const said: string[] = [];
    for (const user of probe.users) {
      const answer = await probe.attempt(`call ${name}`, user);
      said.push(`${user}: ${answer}`);
      if (!through.test(answer)) continue;
      if (ownKernel && kernel === 'own') return blocked(`${said.at(-1)}, of the sandbox's own kernel`);
      return open(said.at(-1)!);
    }
    return blocked(said.join(', '));
  },
});
const file = (
  id: string,
  title: string,
  path: string,
  mode: 'r' | 'w',
  ownKernel = false,
): EnforcementCase => ({
  id: `files.${id}`,
  title,
  async run({ probe, kernel }) {
    const said: string[] = [];
    for (const user of probe.users) {
      const answer = await probe.attempt(`open ${path} ${mode}`, user);
      said.push(`${user}: ${answer}`);
      if (answer !== 'ok') continue;
      if (ownKernel && kernel === 'own') return blocked(`${said.at(-1)}, of the sandbox's own kernel`);
      // A masked file is there, and empty.
      const text = mode === 'r' ? await probe.attempt(`read ${path}`, user) : '';
      if (text === 'text ') return blocked(`${user}: it is empty`);
      return open(said.at(-1)!);
    }
    return blocked(said.join(', '));
  },
});
const status = (
  id: string,
  title: string,
  judge: (text: string, world: CaseWorld) => string | undefined,
): EnforcementCase => ({
  id: `kernel.${id}`,
  title,
  async run(world) {
    for (const user of world.probe.users) {
      const why = judge(await world.probe.attempt('read /proc/self/status', user), world);
      if (why !== undefined) return open(`${user}: ${why}`);
    }
    return blocked('as /proc/self/status says');
  },
});
const capabilities = (text: string, which: string) =>
  BigInt(`0x${new RegExp(`${which}:\\s*([0-9a-f]+)`).exec(text)?.[1] ?? '0'}`);
/** DAC_READ_SEARCH, NET_ADMIN, SYS_MODULE, SYS_RAWIO, SYS_PTRACE… what no program in a sandbox needs. */
const DANGEROUS = {
  DAC_READ_SEARCH: 2n,
  NET_ADMIN: 12n,
  SYS_MODULE: 16n,
  SYS_RAWIO: 17n,
  SYS_ADMIN: 21n,
  SYS_BOOT: 22n,
  SYS_TIME: 25n,
  BPF: 39n,
};
const PERMITTED = { through: LET_THROUGH };

export const KERNEL: readonly EnforcementCase[] = [
  status('capabilities', 'capabilities that change the machine', (text) => {
    const held = capabilities(text, 'CapBnd');
    const found = Object.entries(DANGEROUS)
      .filter(([, bit]) => (held >> bit) & 1n)
      .map(([name]) => name);
    return found.length === 0 ? undefined : `CAP_${found.join(', CAP_')} can be had`;
  }),
  status('no-new-privileges', 'more rights by a set-uid program', (text, { kernel }) =>
    /NoNewPrivs:\s*1/.test(text) || (kernel === 'own' && !text.includes('NoNewPrivs'))
      ? undefined
      : 'no_new_privs is not set',
  ),
  status('seccomp', 'system calls without a filter', (text, { kernel }) =>
    kernel === 'own' || /Seccomp:\s*2/.test(text) ? undefined : 'there is no seccomp filter',
  ),
  call('unshare-mount', 'a mount namespace', { ownKernel: true }),
  call('unshare-user', 'a user namespace', { ownKernel: true }),
  call('unshare-network', 'a network namespace', { ownKernel: true }),
  call('unshare-pid', 'a process namespace', { ownKernel: true }),
  call('unshare-user-network', 'user and network namespaces at once', { ownKernel: true }),
  call('setns-network', 'the network namespace of another', { ownKernel: true }),
  call('mount', 'a mount', { ownKernel: true }),
  call('bind-mount', 'a bind mount', { ownKernel: true }),
  call('remount-proc', 'a remount of /proc', { ownKernel: true }),
  call('umount', 'an unmount', PERMITTED),
  call('pivot-root', 'another root', PERMITTED),
  call('open-tree', 'a detached mount'),
  call('fsopen', 'a file system by its descriptor'),
  call('bpf', 'programs in the kernel (bpf)', PERMITTED),
  call('perf-event', 'performance counters'),
  call('userfaultfd', 'page faults by hand (userfaultfd)'),
  call('io-uring', 'io_uring', { through: /^(ok|EFAULT)/ }),
  call('keyctl', "the kernel's keys", { ownKernel: true }),
  call('init-module', 'a kernel module', { through: /^(ok|errno 8|ENOEXEC)/ }),
  call('kexec', 'another kernel'),
  call('open-by-handle', 'files by their handle', PERMITTED),
  call('swapon', 'swap space', PERMITTED),
  call('syslog', "the kernel's log", { ownKernel: true }),
  call('set-time', 'the clock', { ownKernel: true }),
  call('set-hostname', "the machine's name", { ownKernel: true }),
  call('reboot', 'a reboot', PERMITTED),
  call('ptrace-first', 'tracing the first process'),
  call('read-first', 'reading memory of the first process'),
  call('char-device', 'a character device'),
  call('block-device', 'a block device'),
  file('proc-kcore', "the kernel's memory", '/proc/kcore', 'r'),
  file('dev-mem', "the machine's memory", '/dev/mem', 'r'),
  file('dev-kmsg', "the kernel's log", '/dev/kmsg', 'r'),
  file('dev-kvm', 'virtual machines', '/dev/kvm', 'r'),
  file('dev-fuse', 'file systems by programs', '/dev/fuse', 'r', true),
  file('dev-tun', 'a network device of its own', '/dev/net/tun', 'r', true),
  file('dev-disk', 'a disk', '/dev/vda', 'r'),
  file('sysrq', 'sysrq', '/proc/sysrq-trigger', 'w', true),
  file('core-pattern', 'the program for crashes', '/proc/sys/kernel/core_pattern', 'w', true),
  file('sys-write', 'settings in /sys', '/sys/kernel/mm/transparent_hugepage/enabled', 'w'),
  file('cgroup-write', 'its own limits', '/sys/fs/cgroup/memory.max', 'w'),
  file('cgroup-write-v1', 'its own limits (cgroup v1)', '/sys/fs/cgroup/memory/memory.limit_in_bytes', 'w'),
  file('first-memory', 'memory of the first process as a file', '/proc/1/mem', 'w'),
  {
    id: 'files.host-canary',
    title: "a file of the server's temporary directory",
    async run({ probe, target }) {
      for (const user of probe.users) {
        const said = await probe.attempt(`open /tmp/${target.abstract} r`, user);
        if (said === 'ok') return open(`${user}: ${said}`);
      }
      return blocked('it is not there');
    },
  },
  {
    id: 'kernel.processes',
    title: 'processes of the machine',
    async run({ probe }) {
      const said = await probe.attempt('owners', probe.users.at(-1));
      const [, count = '0', names = ''] = /^processes (\d+) (.*)$/.exec(said) ?? [];
      const found = /node|dockerd|containerd|systemd|runsc|kthreadd/.exec(names);
      return found || Number(count) > 40
        ? open(`${count} are seen: ${names.slice(0, 100)}`)
        : blocked(`${count} are seen, its own`);
    },
  },
  {
    id: 'kernel.user-ids',
    title: 'being root on the machine',
    async run({ probe, kernel }) {
      const said = await probe.attempt('read /proc/self/uid_map');
      const [inside, outside] = said
        .replace(/^text\s*/, '')
        .trim()
        .split(/\s+/);
      if (inside === '0' && outside !== '0' && outside !== undefined)
        return blocked(`root inside is ${outside} outside`);
      return kernel === 'own'
        ? blocked("root inside is root of the sandbox's own kernel")
        : skipped('root inside has the id of root outside; it has no capability that changes the machine');
    },
  },
];
