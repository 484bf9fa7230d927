import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Those that take longest. One of them that begins last keeps the other workers waiting. */
const LONG = [
  'local-runsc',
  'attacks/runtimes',
  'snapshots/zfs',
  'attacks/campaigns',
  'attacks/memory',
  'local-runc',
  'attacks/event-loop',
  'postgres/postgres',
  'docker/docker',
  'local-egress',
  'local-travel-faults',
  'local-process',
  'e2b/python',
  'attacks/inside',
  'e2b/templates',
  'attacks/previews',
  'e2e/server',
  'attacks/lying-guest',
  'attacks/quotas',
  'docs/examples',
  'attacks/filling',
  'e2e/mistakes',
  'e2e/sandboxes',
  'faults/churn',
  'code-interpreter',
  'snapshots/btrfs',
  'e2b/js-runsc',
  'time-travel-faults',
  'sqlite/sqlite',
  'shared-files',
  'platforms-memory',
  'memory/memory',
];

/**
 * The order of test files: those with real sandboxes before the others, because a worker serves one project
 * at a time, and among them the longest first.
 */
export class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId, project }: TestSpecification): number => {
      const at = LONG.findIndex((name) => moduleId.endsWith(`${name}.test.ts`));
      return (at === -1 ? LONG.length : at) + (project.name === 'unit' ? 1_000 : 0);
    };
    return (await super.sort(files)).toSorted((one, other) => rank(one) - rank(other));
  }
}
