/**
 * Tests have two tiers. `npm test` runs the short one: every driver through its suite in at least one
 * configuration, every class of attack, and a server killed at every fault point. `npm run test:all` runs the
 * long one too: the same suites once more over other runtimes, engines and composites, steps that fail where
 * the short tier kills, crashes of drivers that share the code of another, and two of three comparisons. A
 * test file that is named on the command line runs whole.
 */

/** Why a test of the long tier does not run, or undefined if it does. */
export function whyLater(): string | undefined {
  return process.env['CAY_TEST_TIER'] === 'all' ? undefined : 'it is in the long tier: npm run test:all';
}
