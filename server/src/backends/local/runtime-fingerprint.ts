import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { access, constants } from 'node:fs/promises';
import { release } from 'node:os';
import { delimiter, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { guestBinary } from '../../guest/guest-binary.ts';
import type { HostResources } from '../../host/host-resources.ts';

/** Everything that decides what a runtime can do here: its program, the guest, the kernel and the storage. */
export async function runtimeFingerprint(
  { trees, runtimes }: HostResources,
  runtime: string,
): Promise<string> {
  const program = await findProgram(runtimes.get(runtime)?.program ?? runtime);
  const digests = [guestBinary(), ...(program === undefined ? [] : [program])].map(digestOf);
  const parts = [...(await Promise.all(digests)), release(), trees.name];
  return createHash('sha256').update(parts.join('\n')).digest('hex').slice(0, 32);
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

async function findProgram(name: string): Promise<string | undefined> {
  if (name.includes('/')) return name;
  for (const dir of (process.env['PATH'] ?? '').split(delimiter)) {
    const path = join(dir, name);
    if (
      await access(path, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return path;
  }
  return undefined;
}
