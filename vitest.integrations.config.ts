import { defineConfig } from 'vitest/config';

/** The packages of `integrations/` with their frameworks: `npm run test:integrations`. */
export default defineConfig({
  test: {
    environment: 'node',
    env: { CAY_PROBE: 'off' },
    include: ['integrations/**/*.test.ts'],
    exclude: ['**/node_modules/**'],
    pool: 'forks',
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 300_000,
  },
});
