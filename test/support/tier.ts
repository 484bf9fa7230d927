/**
 * Tests have two tiers. `npm test` runs the short one: every driver through its whole suite in at least one
 * configuration, and every class of attack. `npm run test:all` runs the long one too: the same suites once more
 * over other runtimes, engines and composites. A test file that is named on the command line runs whole.
 */

/** Why a test of the long tier does not run, or undefined if it does. */
export function whyLater(): string | undefined {
  return process.env['CAY_TEST_TIER'] === 'all' ? undefined : 'it is in the long tier: npm run test:all';
}
