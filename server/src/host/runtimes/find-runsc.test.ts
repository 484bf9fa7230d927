import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findRunsc, requireNamedRunsc, runscDate } from './find-runsc.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'cay-runsc-'));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

/** A program that tells a version, as `runsc --version` does. */
function program(path: string, version: string): string {
  const full = join(dir, path);
  mkdirSync(join(full, '..'), { recursive: true });
  writeFileSync(full, `#!/bin/sh\n${version === '' ? 'exit 1' : `echo "runsc version ${version}"`}\n`, {
    mode: 0o755,
  });
  return full;
}

function environment(...dirs: string[]) {
  return { PATH: dirs.map((each) => join(dir, each)).join(':'), XDG_CACHE_HOME: join(dir, 'cache') };
}

const BUILT = 'cache/cay/runsc/runsc-20260905-0123456789ab';

describe('findRunsc()', () => {
  it('takes the one that the operator names', () => {
    program('a/runsc', '0.0~20240729.0');
    expect(findRunsc({ ...environment('a'), CAY_RUNSC: '/elsewhere/runsc' })).toBe('/elsewhere/runsc');
  });

  it('is just the name where there is none', () => {
    expect(findRunsc(environment('a'))).toBe('runsc');
  });

  it('takes the newest, in whatever order they are found', () => {
    const old = program('a/runsc', '0.0~20240729.0');
    const current = program('b/runsc', 'release-20251201.0');
    expect(findRunsc(environment('a', 'b'))).toBe(current);
    expect(findRunsc(environment('b', 'a'))).toBe(current);
    expect(findRunsc(environment('a'))).toBe(old);
    const built = program(BUILT, '20260905');
    expect(findRunsc(environment('a', 'b'))).toBe(built);
  });

  it('leaves out what cannot be run, is too old, or is no build', () => {
    const old = program('a/runsc', '0.0~20240729.0');
    program('b/runsc', '0.0~20220101.0');
    program(BUILT, '');
    program('cache/cay/runsc/build-x1', '20270101');
    expect(findRunsc(environment('b', 'a'))).toBe(old);
  });

  it('counts a program once, however many names it has', () => {
    const real = program('a/runsc', '20240729');
    mkdirSync(join(dir, 'b'));
    symlinkSync(real, join(dir, 'b/runsc'));
    expect(findRunsc(environment('a', 'b'))).toBe(real);
  });
});

describe('requireNamedRunsc()', () => {
  it('takes a program, and nothing', () => {
    requireNamedRunsc(program('a/runsc', '20240729'));
    requireNamedRunsc('');
  });

  it.each(['/nowhere/runsc', 'runsc', '/etc/passwd'])('refuses %s', (path) => {
    expect(() => requireNamedRunsc(path)).toThrow('it is no path of a program');
  });
});

it.each([
  ['runsc 20240729', 20240729],
  ['runsc VERSION_MISSING', undefined],
])('%s is of %s', (version, date) => expect(runscDate(version)).toBe(date));
