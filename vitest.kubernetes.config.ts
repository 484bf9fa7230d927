import { defineConfig } from 'vitest/config';
import { SecondAttempts } from './test/support/second-attempts.ts';

const common = {
  environment: 'node' as const,
  pool: 'forks' as const,
  // As in vitest.config.ts: a second attempt in CI, and a list of those at the end.
  retry: process.env['CI'] ? 1 : 0,
  testTimeout: 60_000,
  hookTimeout: 240_000,
};

/**
 * What is run before anything lands; everything else is run by name or all together.
 * `scripts/test-kubernetes` says which tier it is.
 */
const SHORT = {
  shared: ['kubernetes-job-suite'],
  own: ['tenancy', 'attacks', 'faults', 'install'],
};
const short = process.env['CAY_KUBERNETES_TIER'] === 'short';
const files = (directory: string, names: string[]) =>
  (short ? names : ['*']).map((name) => `${directory}/${name}.test.ts`);

/**
 * The tests that need a real cluster. Those that leave it alone share one and run side by side, since most of
 * their time is spent waiting for it; the others have one each.
 */
export default defineConfig({
  test: {
    reporters: ['default', new SecondAttempts()],
    projects: [
      {
        extends: true,
        test: {
          ...common,
          name: 'shared',
          include: files('test/kubernetes/shared', SHORT.shared),
          globalSetup: ['test/kubernetes/shared/setup.ts'],
          maxWorkers: 4,
        },
      },
      {
        extends: true,
        test: {
          ...common,
          name: 'own',
          include: files('test/kubernetes', SHORT.own),
          fileParallelism: false,
        },
      },
    ],
  },
});
