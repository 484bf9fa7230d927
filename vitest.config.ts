import { statfsSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { LongFirst } from './test/support/long-first.ts';
import { LaterTier } from './test/support/later-tier.ts';
import { SecondAttempts } from './test/support/second-attempts.ts';
import { MIDDLE, tier } from './test/support/tier.ts';

const GiB = 1024 ** 3;
const NOWHERE = ['**/node_modules/**'];

/**
 * They start real sandboxes, engines or databases: they need root, packages of Debian, and the built guest.
 */
const SYSTEM = [
  'server/src/backends/local/**/*.test.ts',
  'server/src/backends/docker/{docker,docker-egress,docker-travel-faults,pull}.test.ts',
  'server/src/backends/**/*-local.test.ts',
  // Twice the whole suite of backends, which the memory backend passes among the unit tests.
  'server/src/backends/composite/platforms-memory.test.ts',
  'server/src/control/several-servers.test.ts',
  // An S3 server of PyPI.
  'server/src/control/buckets/buckets.test.ts',
  'server/src/s3/bucket.test.ts',
  'server/src/storage/s3.test.ts',
  'server/src/records/postgres/**/*.test.ts',
  'server/src/guest/{guest-binary,direct-connection}.test.ts',
  'server/src/host/**/*.test.ts',
  'test/docs/{examples,readme,writing-a-backend}.test.ts',
  // Those of the cluster have a command of their own.
  'test/!(docs|kubernetes)/**/*.test.ts',
];

/** Where servers of unit tests write: records are synced at every change, which takes no time in memory. */
function unitDirectory(): Record<string, string> {
  const shared = '/dev/shm';
  try {
    const { bavail, bsize } = statfsSync(shared);
    return bavail * bsize > 4 * GiB ? { TMPDIR: shared } : {};
  } catch {
    return {};
  }
}

// A test file that is named runs whole: `test/support/tier.ts`. Workers inherit the variable.
if (process.argv.slice(2).some((argument) => argument.endsWith('.test.ts')))
  process.env['CAY_TEST_TIER'] = 'all';

/** The files of a project that are of the tier. */
function files(
  include: readonly string[],
  exclude: readonly string[] = [],
): { include: string[]; exclude: string[] } {
  const all = { include: [...include], exclude: [...NOWHERE, ...exclude] };
  if (tier() === 'all') return all;
  if (tier() === 'short') return { ...all, exclude: [...all.exclude, ...MIDDLE] };
  // All of the middle tier are among those of the system.
  return { ...all, include: include === SYSTEM ? [...MIDDLE] : [] };
}

export default defineConfig({
  test: {
    environment: 'node',
    env: {
      // Servers that tests start make no sandboxes of their own beside those of the test.
      CAY_PROBE: 'off',
      // They take their sources compiled from where `./cay` keeps them.
      NODE_COMPILE_CACHE: join(import.meta.dirname, 'node_modules/.cache/cay'),
    },
    pool: 'forks',
    // A worker runs many files, and loads the server's modules once.
    isolate: false,
    // Suites wait for processes and timeouts as much as they compute.
    maxWorkers: Number(process.env['CAY_TEST_WORKERS'] ?? 4),
    sequence: { sequencer: LongFirst },
    // In CI one failure of real kernels and engines stops everybody. A second attempt is never hidden: the
    // run ends with the list of them.
    retry: process.env['CI'] ? 1 : 0,
    reporters: ['default', new SecondAttempts(), new LaterTier()],
    testTimeout: 30_000,
    hookTimeout: 120_000,
    projects: [
      // Real kernels and engines on a machine that may have other work.
      { extends: true, test: { name: 'system', ...files(SYSTEM), testTimeout: 60_000 } },
      {
        extends: true,
        test: {
          name: 'unit',
          ...files(['{bench,sdk,server}/**/*.test.ts', 'test/docs/**/*.test.ts'], SYSTEM),
          env: unitDirectory(),
        },
      },
    ],
  },
});
