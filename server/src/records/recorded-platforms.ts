import type { Database } from './database.ts';

/**
 * The platforms that sandboxes and snapshots are recorded to be on; none where there never was more than one.
 */
export function recordedPlatforms(database: Database): string[] {
  return database
    .all<{ platform: string }>(
      `SELECT DISTINCT json_extract(spec, '$.platform') AS platform
       FROM (SELECT spec FROM sandboxes UNION ALL SELECT spec FROM snapshots)
       WHERE platform IS NOT NULL ORDER BY platform`,
    )
    .map(({ platform }) => platform);
}
