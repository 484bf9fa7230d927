import type { TableContext } from './table-context.ts';

export interface PlatformRecords {
  /** The platforms that sandboxes and snapshots are on; empty where there was never more than one. */
  list(): Promise<string[]>;
}

export function platformTable({ sql }: TableContext): PlatformRecords {
  return {
    async list() {
      const platform = sql.dialect.jsonText('spec', 'platform');
      const rows = await sql.all<{ platform: string }>(
        `SELECT DISTINCT ${platform} AS platform
         FROM (SELECT spec FROM sandboxes UNION ALL SELECT spec FROM snapshots) AS specs
         WHERE ${platform} IS NOT NULL ORDER BY platform`,
      );
      return rows.map((row) => row.platform);
    },
  };
}
