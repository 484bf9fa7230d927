/**
 * Tests have three tiers.
 *
 * - *Short*, `npm test`: the unit tests, every family of drivers through its whole suite, gVisor and runc
 *   among the runtimes, most classes of attack, and servers that are killed.
 * - *Middle*, `npm run test:middle`: the files of `MIDDLE` and nothing else. They take further drivers
 *   through the same suites (Docker, ZFS, overlay), kill and fail at every fault point, and run the other
 *   classes of attack and clients of others. A change has to pass both before it lands: `.ci/run` runs one
 *   after the other.
 * - *Long*, `npm run test:all`: all files, and in them also the cases that say `whyLater()`: the same suites
 *   once more over other runtimes, engines and composites, and steps that fail where the others kill.
 *
 * A test file that is named on the command line runs whole, whatever its tier.
 */
export type Tier = 'short' | 'middle' | 'all';

const TIERS: readonly Tier[] = ['short', 'middle', 'all'];

/** The files of the middle tier, which the short one leaves out. */
export const MIDDLE: readonly string[] = [
  'server/src/backends/docker/{docker,docker-egress,docker-travel-faults,pull}.test.ts',
  'server/src/backends/local/local-{egress,faults,hostname,ids,memory,parking,travel-faults}.test.ts',
  'server/src/backends/probing/probed-local.test.ts',
  'server/src/control/{buckets/buckets,several-servers}.test.ts',
  'server/src/host/images/image-faults.test.ts',
  'server/src/host/snapshots/{overlay,send-changes,zfs}.test.ts',
  'server/src/{s3/bucket,storage/s3}.test.ts',
  'test/attacks/{audit-flood,docker,hostile-buckets,images,large-records,mute-guests,slow-names}.test.ts',
  'test/builds/{docker-build,template-build}.test.ts',
  'test/compat/compat.test.ts',
  'test/e2b/{code-interpreter,js-runsc,python,templates,wildcard-tls}.test.ts',
  'test/e2e/{bucket-mounts,bucket-mounts-semantics,buckets,jobs,move,network-docker,package,platforms}.test.ts',
  'test/egress/{inside-docker,killed-carrier}.test.ts',
  'test/faults/{bucket-mounts,churn,kill-records,model/model,reboot}.test.ts',
  'test/integrations/python-client.test.ts',
];

export function tier(): Tier {
  const named = process.env['CAY_TEST_TIER'] ?? 'short';
  const known = TIERS.find((one) => one === named);
  if (!known) throw new Error(`CAY_TEST_TIER is "${named}", and must be one of ${TIERS.join(', ')}`);
  return known;
}

/** Why a case of the long tier does not run, or undefined if it does. */
export function whyLater(): string | undefined {
  return tier() === 'all' ? undefined : 'it is in the long tier: npm run test:all';
}
