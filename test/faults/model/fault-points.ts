/**
 * Every gap between a record and a operation that the code names, found in the code itself so that none is
 * forgotten.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const SOURCE = join(import.meta.dirname, '../../../server/src');

const ALL_POINTS: readonly string[] = globSync('**/*.ts', { cwd: SOURCE })
  .filter((file) => !file.endsWith('.test.ts') && !file.startsWith('lib/'))
  .flatMap((file) =>
    [...readFileSync(join(SOURCE, file), 'utf8').matchAll(/\bfaultPoint\('([a-z.A-Z_-]+)'\)/g)].map(
      (match) => match[1]!,
    ),
  )
  .toSorted();

/** Those that only sandboxes on a cluster come by. */
export const CLUSTER_POINTS = ALL_POINTS.filter((point) => /^(kubernetes|agent-sandbox)\./.test(point));

export const FAULT_POINTS = ALL_POINTS.filter((point) => !CLUSTER_POINTS.includes(point));

/** Those at which a sandbox is copied, put back, or put on disk. */
export const TRAVEL_POINTS = FAULT_POINTS.filter((point) =>
  /\.(snapshot|rollback|fork|clone|hibernate|wake)\./.test(point),
);
