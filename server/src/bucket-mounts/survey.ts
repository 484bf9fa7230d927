/** What lies in directories of mounts and no bucket has, as a server that does not run has left it. */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { BucketMountFacts, Unwritten } from './bucket-mounts.ts';
import { factsIn, hasContents } from './mount-table.ts';
import { Nodes } from './nodes.ts';

/** Changes nothing, also while a server runs. */
export async function surveyMount(directory: string): Promise<Unwritten[]> {
  const facts = await factsIn(directory).catch(() => undefined);
  if (!facts || !hasContents(directory)) return [];
  const nodes = new Nodes(join(directory, 'nodes'), { look: true });
  try {
    const spool = join(directory, 'spool');
    return readdirSync(spool).flatMap((name) => unwrittenIn(nodes, facts, { name, file: join(spool, name) }));
  } finally {
    nodes.close();
  }
}

function unwrittenIn(
  nodes: Nodes,
  { bucket, path }: BucketMountFacts,
  { name, file }: { name: string; file: string },
): Unwritten[] {
  const id = Number(name);
  if (nodes.found.get(id)?.dirty !== true || !nodes.has(id)) return [];
  const node = nodes.find(id);
  if (node.unlinked) return [];
  return [{ bucket, path, key: nodes.keyOf(node), sizeBytes: statSync(file).size }];
}

/** Of all mounts below the directory of a backend. */
export async function surveyMounts(
  directories: readonly string[],
): Promise<{ facts: BucketMountFacts; unwritten: Unwritten[] }[]> {
  const found = [];
  for (const directory of directories) {
    const unwritten = await surveyMount(directory);
    if (unwritten.length > 0) found.push({ facts: await factsIn(directory), unwritten });
  }
  return found;
}
