import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { prepareHost } from './prepare-host.ts';

/** A repository whose scripts only say that they were run. */
let root: string;
const log = () =>
  existsSync(join(root, 'log')) ? readFileSync(join(root, 'log'), 'utf8').trim().split('\n') : [];
const script = (name: string, then = '') => {
  writeFileSync(join(root, 'scripts', name), `#!/bin/sh\necho ${name} >> ${root}/log\n${then}\n`);
  chmodSync(join(root, 'scripts', name), 0o755);
};
beforeEach(() => {
  root = mkdtempSync('/tmp/cay-host-');
  for (const dir of ['scripts', 'bin', 'guest/target/release'])
    mkdirSync(join(root, dir), { recursive: true });
  script('build-guest');
  script('install-host');
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const prepare = (backends: string[], isRoot = true) =>
  prepareHost(backends, { root, isRoot, path: [join(root, 'bin')] });
const guest = () => writeFileSync(join(root, 'guest/target/release/cay-guest'), '');
const programs = () =>
  ['runsc', 'runc', 'mkfs.btrfs'].forEach((name) => writeFileSync(join(root, 'bin', name), ''));

describe('prepareHost()', () => {
  it('runs nothing when nothing is missing, and nothing for backends elsewhere', () => {
    prepare(['memory']);
    prepare(['kubernetes-job']);
    guest();
    programs();
    prepare(['local', 'docker']);
    expect(log()).toEqual([]);
  });

  it('builds the guest, and installs packages for the local backend as root', () => {
    prepare(['docker']);
    expect(log()).toEqual(['build-guest']);
    guest();
    prepare(['local'], false);
    expect(log()).toEqual(['build-guest']);
    prepare(['local']);
    expect(log()).toEqual(['build-guest', 'install-host']);
  });

  it('builds the guest again when its sources are newer', () => {
    mkdirSync(join(root, 'guest/src/deep'), { recursive: true });
    const source = join(root, 'guest/src/deep/main.rs');
    writeFileSync(source, '');
    guest();
    programs();
    const tomorrow = new Date(Date.now() + 86_400_000);
    utimesSync(join(root, 'guest/target/release/cay-guest'), tomorrow, tomorrow);
    prepare(['local']);
    expect(log()).toEqual([]);
    utimesSync(source, tomorrow, new Date(tomorrow.getTime() + 1000));
    prepare(['local']);
    expect(log()).toEqual(['build-guest']);
  });

  it('names the script that failed', () => {
    script('build-guest', 'exit 1');
    expect(() => prepare(['local'])).toThrow('Failed while building the guest');
  });

  it('does nothing in a package, which has no scripts', () => {
    rmSync(join(root, 'scripts'), { recursive: true });
    prepare(['local']);
    expect(log()).toEqual([]);
  });
});
