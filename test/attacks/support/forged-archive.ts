/**
 * A snapshot's archive with another manifest, and a digest that fits it: what anybody can make of an archive
 * of their own.
 */
import { readEnvelope, writeEnvelope } from '../../../server/src/host/archives/envelope.ts';

export async function forgedArchive(
  archive: Uint8Array,
  change: (manifest: Record<string, unknown>) => object,
): Promise<Buffer> {
  const source = (async function* () {
    yield archive;
  })();
  const reader = readEnvelope(source);
  const manifest = JSON.parse((await reader.manifest(4 * 1024 * 1024)).toString()) as Record<string, unknown>;
  const text = Buffer.from(`${JSON.stringify(change(manifest), undefined, 2)}\n`);
  const forged = writeEnvelope(text, [{ name: 'tree', content: reader.part('tree') }]);
  return Buffer.concat(await Array.fromAsync(forged));
}
