import { defineConfig } from 'vitest/config';

/** The tests that need a real cluster, which each of them starts for itself. */
export default defineConfig({
  test: {
    environment: 'node',
    include: ['test/kubernetes/**/*.test.ts'],
    pool: 'forks',
    // A cluster has all the cores that there are.
    fileParallelism: false,
    retry: process.env['CI'] ? 1 : 0,
    testTimeout: 60_000,
    hookTimeout: 240_000,
  },
});
