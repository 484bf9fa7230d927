import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CayError, EnforcementReportSchema, type EnforcementReport } from '@cay/sdk/protocol';
import { writeFileAtomic } from '../../lib/atomic-file.ts';
import type { EnforcementReports } from './enforcement.ts';

/** Keeps the last report of each platform and runtime as a file. Without a directory none is kept. */
export function openReportStore(directory: string | undefined): EnforcementReports {
  const fileOf = ({ platform, runtime }: Pick<EnforcementReport, 'platform' | 'runtime'>) =>
    `${encodeURIComponent(platform)}@${encodeURIComponent(runtime)}.json`;

  async function of(platform: string): Promise<EnforcementReport[]> {
    if (directory === undefined) return [];
    const names = await readdir(directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
    const found: EnforcementReport[] = [];
    for (const name of names) {
      if (!name.startsWith(`${encodeURIComponent(platform)}@`) || !name.endsWith('.json')) continue;
      // A file of another version that cannot be read is as if there were none.
      const read = EnforcementReportSchema.safeParse(
        JSON.parse(await readFile(join(directory, name), 'utf8')),
      );
      if (read.success) found.push(read.data);
    }
    return found.toSorted((one, other) => other.at.localeCompare(one.at));
  }

  return {
    of,
    async keep(report) {
      if (directory === undefined) return;
      await mkdir(directory, { recursive: true, mode: 0o700 });
      await writeFileAtomic(join(directory, fileOf(report)), JSON.stringify(report));
    },
    async requireNotFailed(platform, what) {
      const failed = (await of(platform)).find(({ verdict }) => verdict === 'not_enforced');
      if (!failed) return;
      const open = failed.cases.filter(({ state }) => state === 'open').map(({ id }) => id);
      throw new CayError(
        'failed_precondition',
        `Platform "${platform}" does not enforce what ${what} needs: ${open.slice(0, 5).join(', ')}`,
        {
          details: { platform, runtime: failed.runtime, at: failed.at, open },
          hint: `look at "cay enforce show --platform ${platform}", correct it, and run "cay enforce report" again`,
        },
      );
    },
  };
}
