import { defineConfig } from 'vitest/config';

const common = { environment: 'node' as const, pool: 'forks' as const, testTimeout: 60_000, hookTimeout: 240_000 };

/**
 * The tests that need a real cluster. Those that leave it alone share one and run side by side, since most of their time is spent waiting for it;
 * the others have one each.
 */
export default defineConfig({
  test: {
    retry: process.env['CI'] ? 2 : 0,
    projects: [
      {
        extends: true,
        test: {
          ...common,
          name: 'shared',
          include: ['test/kubernetes/shared/*.test.ts'],
          globalSetup: ['test/kubernetes/shared/setup.ts'],
          maxWorkers: 4,
        },
      },
      { extends: true, test: { ...common, name: 'own', include: ['test/kubernetes/*.test.ts'], fileParallelism: false } },
    ],
  },
});
