import { defineConfig } from 'vitest/config';
import { LongFirst } from './test/support/long-first.ts';

export default defineConfig({
  test: {
    environment: 'node',
    // Servers that tests start make no sandboxes of their own beside those of the test.
    env: { CAY_PROBE: 'off' },
    include: ['{bench,sdk,server,test}/**/*.test.ts'],
    // They need a real cluster, and have a command of their own.
    exclude: ['test/kubernetes/**', '**/node_modules/**'],
    pool: 'forks',
    // Suites start real sandboxes; more workers than cores only make each other late.
    maxWorkers: 2,
    sequence: { sequencer: LongFirst },
    // Real kernels and engines on a shared machine: a case that fails once by bad timing is run again, and
    // the report says so.
    retry: process.env['CI'] ? 1 : 0,
    testTimeout: 30_000,
    hookTimeout: 120_000,
  },
});
