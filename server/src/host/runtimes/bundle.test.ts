import { describe, expect, it } from 'vitest';
import type { Cgroup } from '../cgroups/cgroup.ts';
import { type Bundled, type BundleTraits, buildBundle, MAX_TERMINALS } from './bundle.ts';
import { lastWords } from './runtime-log.ts';
import { parseVersion } from './parse-version.ts';
import { seccompProfile } from './seccomp.ts';

const container: Bundled = {
  name: 'i1',
  bundleDir: '/data/i1',
  rootDir: '/data/i1/root',
  readOnlyRoot: false,
  socketDir: '/data/i1/socket',
  guestBinary: '/opt/cay/cay-guest',
  binds: [{ source: '/usr', target: '/usr', readOnly: true }],
  hostname: 'box',
  openFiles: 65_536,
  // Only its two paths matter here.
  cgroup: {
    ociPath: '/cay/i1',
    memoryPath: '/sys/fs/cgroup/memory/cay/i1',
  } as Cgroup,
};
const traits: BundleTraits = {
  ids: { hostId: 500_000, size: 65_536 },
  maxOpenFiles: 20_000,
  sharesKernel: true,
  seccomp: seccompProfile({ architecture: 'x64' }),
};
const targets = (bundle: ReturnType<typeof buildBundle>) =>
  bundle.mounts.map(({ destination }) => destination);

describe('buildBundle()', () => {
  it('maps the ids, joins the cgroup and walls off every namespace', () => {
    const { linux } = buildBundle(container, traits);
    expect(linux.uidMappings).toEqual([{ containerID: 0, hostID: 500_000, size: 65_536 }]);
    expect(linux.gidMappings).toEqual(linux.uidMappings);
    expect(linux.cgroupsPath).toBe('/cay/i1');
    expect(linux.namespaces.map(({ type }) => type).toSorted()).toEqual([
      'cgroup',
      'ipc',
      'mount',
      'network',
      'pid',
      'user',
      'uts',
    ]);
  });

  it('has the root where it is mounted, with ids of its own, and joins the user namespace made for them', () => {
    const ids = { hostId: 700_000, size: 65_536 };
    const joining = buildBundle({ ...container, ids }, { ...traits, joinsUser: true });
    expect(joining.root.path).toBe('/data/i1/mount');
    expect(joining.linux.uidMappings).toEqual([{ containerID: 0, hostID: 700_000, size: 65_536 }]);
    expect(joining.linux.namespaces).toContainEqual({ type: 'user', path: '/data/i1/user' });
    // A process that has joined the user namespace may not raise its rlimits: the runtime gets them before.
    expect(joining.process.rlimits).toEqual([]);
    const without = buildBundle({ ...container, ids }, traits);
    expect(without.linux.namespaces).toContainEqual({ type: 'user' });
    expect(without.process.rlimits.length).toBeGreaterThan(1);
  });

  it('gives no capability over the machine and none to users that are not root', () => {
    const { capabilities, noNewPrivileges } = buildBundle(container, traits).process;
    expect(noNewPrivileges).toBe(true);
    expect(capabilities.inheritable).toEqual([]);
    expect(capabilities.ambient).toEqual([]);
    for (const name of [
      'SYS_ADMIN',
      'NET_ADMIN',
      'NET_RAW',
      'SYS_PTRACE',
      'MKNOD',
      'SYS_MODULE',
      'DAC_READ_SEARCH',
    ]) {
      expect(capabilities.bounding).not.toContain(`CAP_${name}`);
    }
  });

  it('shows the host read-only, without devices and set-user-id programs', () => {
    const binds = buildBundle(container, traits).mounts.filter(({ type }) => type === 'bind');
    expect(binds.map(({ source, destination }) => [source, destination])).toEqual([
      ['/sys/devices/system/cpu', '/sys/devices/system/cpu'],
      ['/sys/kernel/mm/transparent_hugepage', '/sys/kernel/mm/transparent_hugepage'],
      ['/usr', '/usr'],
      ['/data/i1/socket', '/run/cay'],
      ['/sys/fs/cgroup/memory/cay/i1', '/run/cay/cgroup'],
      ['/opt/cay/cay-guest', '/run/cay-guest'],
    ]);
    for (const { options } of binds)
      expect(options).toEqual(expect.arrayContaining(['bind', 'ro', 'nosuid', 'nodev']));
  });

  it('mounts parents before children', () => {
    const all = targets(buildBundle(container, traits));
    all.forEach((target, index) =>
      expect(all.slice(index + 1).filter((later) => target.startsWith(`${later}/`))).toEqual([]),
    );
  });

  it('keeps /tmp on the disk unless the root is read-only', () => {
    expect(targets(buildBundle(container, traits))).not.toContain('/tmp');
    const readOnly = buildBundle({ ...container, readOnlyRoot: true }, traits);
    expect(targets(readOnly)).toContain('/tmp');
    expect(readOnly.root.readonly).toBe(true);
  });

  it('asks for no more open files than can be had', () => {
    expect(buildBundle(container, traits).process.rlimits).toContainEqual({
      type: 'RLIMIT_NOFILE',
      soft: 20_000,
      hard: 20_000,
    });
    expect(buildBundle({ ...container, openFiles: 100 }, traits).process.rlimits[0]?.hard).toBe(100);
  });

  it('bounds what the kernel counts for all sandboxes together', () => {
    const { process, mounts } = buildBundle(container, traits);
    expect(process.rlimits).toContainEqual({ type: 'RLIMIT_MSGQUEUE', soft: 0, hard: 0 });
    expect(process.rlimits).toContainEqual({ type: 'RLIMIT_MEMLOCK', soft: 0, hard: 0 });
    expect(mounts.find(({ destination }) => destination === '/dev/pts')?.options).toContain(
      `max=${MAX_TERMINALS}`,
    );
    expect(mounts.map(({ type }) => type)).not.toContain('mqueue');
  });

  it("shows processors and page sizes of the host's /sys and nothing else", () => {
    const { mounts } = buildBundle(container, traits);
    expect(mounts.map(({ type }) => type)).not.toContain('sysfs');
    expect(mounts.find(({ destination }) => destination === '/sys')).toMatchObject({ type: 'tmpfs' });
    const shown = mounts.filter(
      ({ source }) => source.startsWith('/sys/') && !source.startsWith('/sys/fs/cgroup/'),
    );
    expect(shown.map(({ source }) => source)).toEqual([
      '/sys/devices/system/cpu',
      '/sys/kernel/mm/transparent_hugepage',
    ]);
    expect(shown.every(({ options }) => options.includes('ro'))).toBe(true);
  });

  it('leaves filter, masks and memory events away from a runtime with a kernel of its own', () => {
    const bundle = buildBundle(container, { ids: traits.ids, maxOpenFiles: 1000, sharesKernel: false });
    expect(bundle.linux).not.toHaveProperty('seccomp');
    expect(bundle.linux).not.toHaveProperty('maskedPaths');
    expect(targets(bundle)).not.toContain('/run/cay/cgroup');
  });
});

describe('seccompProfile()', () => {
  const profile = seccompProfile({ architecture: 'x64' })!;
  const rules = (name: string) => profile.syscalls.filter(({ names }) => names.includes(name));

  it.each([
    'mount',
    'umount2',
    'setns',
    'unshare',
    'bpf',
    'perf_event_open',
    'keyctl',
    'add_key',
    'kexec_load',
    'init_module',
    'open_by_handle_at',
    'userfaultfd',
    'pivot_root',
    'open_tree',
    'fsopen',
    'reboot',
    'swapon',
  ])('refuses %s as if the right were missing', (name) =>
    expect(rules(name)).toMatchObject([{ action: 'SCMP_ACT_ERRNO', errnoRet: 1 }]),
  );

  it.each([
    'io_uring_setup',
    'io_uring_enter',
    'io_uring_register',
    'io_setup',
    'mq_open',
    'no_such_call_yet',
  ])('has no %s', (name) => {
    expect(rules(name)).toEqual([]);
    expect(profile.defaultErrnoRet).toBe(38);
  });

  it('makes clone3 missing and clone without new namespaces', () => {
    expect(rules('clone3')).toMatchObject([{ action: 'SCMP_ACT_ERRNO', errnoRet: 38 }]);
    expect(rules('clone')).toMatchObject([
      { args: [{ index: 0, value: 0x7e020000, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }] },
    ]);
  });

  it('has pairs of sockets in one family alone', () => {
    expect(rules('socketpair')).toMatchObject([
      { action: 'SCMP_ACT_ALLOW', args: [{ index: 0, value: 1, op: 'SCMP_CMP_EQ' }] },
      { action: 'SCMP_ACT_ERRNO', errnoRet: 97, args: [{ index: 0, value: 1, op: 'SCMP_CMP_NE' }] },
    ]);
  });

  it('says each name once, except where arguments tell the rules apart', () => {
    const plain = profile.syscalls.filter(({ args }) => args === undefined).flatMap(({ names }) => names);
    expect(plain).toHaveLength(new Set(plain).size);
  });

  it('lists one architecture and knows when it has none', () => {
    expect(profile.architectures).toEqual(['SCMP_ARCH_X86_64']);
    expect(seccompProfile({ architecture: 'mips' })).toBeUndefined();
  });
});

describe('parseVersion()', () => {
  it.each([
    ['runc', 'runc version 1.1.5+ds1\ncommit: x\n', 'runc 1.1.5'],
    ['runsc', 'runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n', 'runsc 20240729'],
    ['runsc', 'runsc version release-20250820.0\n', 'runsc 20250820'],
    ['crun', 'crun version 1.8.1\ncommit: y\n', 'crun 1.8.1'],
  ])('reads that of %s', (name, text, expected) => expect(parseVersion(name, text)).toBe(expected));
});

describe('lastWords()', () => {
  it('gives all errors of a log, the cause first', () => {
    const log =
      'time="t" level=warning msg="odd"\ntime="t" level=fatal msg="no \\"x\\""\ntime="t" level=error msg="run failed"\n';
    expect(lastWords(log)).toBe('no "x"; run failed');
    expect(lastWords('{"msg":"cannot","level":"error","time":"t"}\n')).toBe('cannot');
    expect(lastWords('plain words\n')).toBe('plain words');
    expect(lastWords('')).toBe('');
  });
});
