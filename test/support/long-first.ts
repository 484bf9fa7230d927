import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Those that take a minute and more. One of them that begins last keeps the other worker waiting. */
const LONG = [
  'local-runsc',
  'docker/docker',
  'zfs',
  'local-travel-faults',
  'local-process',
  'local-runc',
  'e2b/python',
  'e2b/templates',
];

/** The order of test files: the longest first. */
export class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const at = LONG.findIndex((name) => moduleId.endsWith(`${name}.test.ts`));
      return at === -1 ? LONG.length : at;
    };
    return (await super.sort(files)).toSorted((one, other) => rank(one) - rank(other));
  }
}
