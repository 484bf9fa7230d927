/** What objects of sandboxes are rendered with in tests. */
export const WORKLOAD_OPTIONS = {
  settings: { guestImage: 'guest:1', baseImage: 'base:1' },
  requests: { cpus: 0.05, memoryBytes: 1 },
  pullPolicy: 'Never',
  runtime: { name: 'default', gvisor: false },
  namespace: 'default',
  installation: 'default',
  specHash: 'hash',
  leaseSeconds: 60,
};
