import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { installGvisor } from './install-gvisor.ts';

/** A repository whose build script makes a program that prints a version, and a PATH of its own. */
let root: string;
const program = (name: string, lines: string) => {
  writeFileSync(join(root, name), `#!/bin/sh\n${lines}\n`);
  chmodSync(join(root, name), 0o755);
};
const env = () => ({ PATH: `${join(root, 'bin')}:/usr/bin:/bin`, HOME: root });
const printsVersion = (date: string) => `echo 'runsc version release-${date}.0'`;

beforeEach(() => {
  root = mkdtempSync('/tmp/cay-gvisor-');
  for (const dir of ['scripts', 'bin']) mkdirSync(join(root, dir));
  program('built', printsVersion('20260905'));
  program('scripts/build-runsc', `echo building >&2; echo ${join(root, 'built')}`);
  program('bin/runsc', printsVersion('20240729'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const install = (force = false) => installGvisor({ root, force, env: env() });

describe('installGvisor()', () => {
  it('builds where the present version is old', async () => {
    program('bin/go', '');
    expect(await install()).toEqual({
      program: join(root, 'built'),
      version: 'runsc 20260905',
      built: true,
    });
  });

  it('builds nothing where the present version is current, unless it is forced', async () => {
    program('bin/go', '');
    program('bin/runsc', printsVersion('20260101'));
    expect(await install()).toMatchObject({ program: join(root, 'bin/runsc'), built: false });
    expect(await install(true)).toMatchObject({ program: join(root, 'built'), built: true });
  });

  it('says what is missing', async () => {
    // A PATH without Go: the machine's own directories may have one.
    const bare = { PATH: join(root, 'bin'), HOME: root };
    await expect(installGvisor({ root, env: bare })).rejects.toMatchObject({ code: 'failed_precondition' });
    program('bin/go', '');
    program('scripts/build-runsc', 'exit 1');
    await expect(install()).rejects.toMatchObject({ code: 'unavailable' });
    rmSync(join(root, 'scripts'), { recursive: true });
    await expect(install()).rejects.toMatchObject({ code: 'unsupported' });
  });
});
