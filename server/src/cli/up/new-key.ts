import { join } from 'node:path';
import type { SealedBox } from '../../lib/sealed-box.ts';

/** The file with the command line's key was lost: another key replaces it. */
export async function newKey(dataDir: string, box: SealedBox): Promise<string> {
  const [{ openDatabase }, { keyRecords }, { projectRecords }] = await Promise.all([
    import('../../records/database.ts'),
    import('../../records/keys.ts'),
    import('../../records/projects.ts'),
  ]);
  const database = openDatabase(join(dataDir, 'control', 'records.db'), box);
  try {
    const project = projectRecords(database).byName('default');
    return keyRecords(database).create({ name: 'cli', project: project!.id, role: 'admin' }).secret;
  } finally {
    database.close();
  }
}
