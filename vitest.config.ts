import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'node',
    include: ['sdk/**/*.test.ts', 'server/**/*.test.ts', 'test/**/*.test.ts'],
    pool: 'forks',
    // Suites start real sandboxes; more workers than cores only make each other late.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 120_000,
  },
});
