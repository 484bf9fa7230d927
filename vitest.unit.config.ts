import { defineConfig } from 'vitest/config';

/** What needs no root, no installed package and no built guest: `npm run test:unit`. */
export default defineConfig({
  test: {
    environment: 'node',
    include: ['sdk/**/*.test.ts', 'server/**/*.test.ts', 'test/docs/**/*.test.ts'],
    exclude: [
      '**/node_modules/**',
      // They start real sandboxes.
      'server/src/backends/local/**',
      'server/src/backends/docker/docker.test.ts',
      'server/src/backends/composite/composite-local.test.ts',
      'server/src/guest/guest-binary.test.ts',
      'server/src/host/**',
      'test/docs/examples.test.ts',
    ],
    pool: 'forks',
    testTimeout: 30_000,
  },
});
