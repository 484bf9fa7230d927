import { describe, expect, it } from 'vitest';
import { parseProcesses } from './control-files.ts';
import { parseCgroupMounts } from './detect.ts';

describe('parseCgroupMounts()', () => {
  it('finds version 2', () => {
    const mounts = parseCgroupMounts(
      '30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n',
      '0::/system.slice/cay.service\n',
    );
    expect(mounts).toEqual([
      { version: 'v2', dir: '/sys/fs/cgroup', controllers: [], own: '/system.slice/cay.service' },
    ]);
  });

  it('finds every hierarchy of version 1, two controllers in one, and the version 2 beside them', () => {
    const mountinfo = [
      '31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw',
      '32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct',
      '33 30 0:29 / /sys/fs/cgroup/memory rw shared:1 master:2 - cgroup cgroup rw,memory',
      '34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup systemd rw,xattr,release_agent=/x,name=systemd',
      '35 30 0:29 / /elsewhere rw - cgroup cgroup rw,memory',
      '36 30 0:31 / /tmp rw - tmpfs tmpfs rw',
    ].join('\n');
    expect(
      parseCgroupMounts(mountinfo, '3:cpu,cpuacct:/a\n2:memory:/b:c\n1:name=systemd:/d\n0::/e\n'),
    ).toEqual([
      { version: 'v2', dir: '/sys/fs/cgroup/unified', controllers: [], own: '/e' },
      { version: 'v1', dir: '/sys/fs/cgroup/cpu,cpuacct', controllers: ['cpu', 'cpuacct'], own: '/a' },
      { version: 'v1', dir: '/sys/fs/cgroup/memory', controllers: ['memory'], own: '/b:c' },
      { version: 'v1', dir: '/sys/fs/cgroup/systemd', controllers: ['name=systemd'], own: '/d' },
    ]);
  });

  it('knows where our group is when the mount shows only a part of the hierarchy', () => {
    const [mount] = parseCgroupMounts(
      '33 30 0:29 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory',
      '2:memory:/docker/x/y\n',
    );
    expect(mount).toMatchObject({ dir: '/sys/fs/cgroup/memory', own: '/y' });
  });

  it('reads mount points with spaces in them', () => {
    expect(parseCgroupMounts('30 23 0:26 / /a\\040b rw - cgroup2 cgroup2 rw', '0::/')[0]?.dir).toBe('/a b');
  });
});

describe('parseProcesses()', () => {
  it('drops processes that cannot be named from here, and the first one', () => {
    expect(parseProcesses('0\n1\n17\n0\n4242\n')).toEqual([17, 4242]);
  });
});
