import { defineConfig } from 'vitest/config';

/** What needs no root, no installed package and no built guest: `npm run test:unit`. */
export default defineConfig({
  test: {
    environment: 'node',
    include: ['sdk/**/*.test.ts', 'server/**/*.test.ts', 'test/docs/**/*.test.ts'],
    exclude: [
      '**/node_modules/**',
      // They start real sandboxes, engines or databases.
      'server/src/backends/local/**',
      'server/src/backends/docker/{docker,pull}.test.ts',
      'server/src/backends/**/*-local.test.ts',
      'server/src/records/postgres/**',
      'server/src/guest/guest-binary.test.ts',
      'server/src/host/**',
      'test/docs/{examples,readme,writing-a-backend}.test.ts',
    ],
    pool: 'forks',
    testTimeout: 30_000,
  },
});
