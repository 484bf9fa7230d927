import { newId, type VolumeId } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { volumeClaimName } from '../client/names.ts';
import type { KubernetesObject } from '../client/objects.ts';
import { fakeApiServer, type FakeApiServer } from '../testing/fake-api-server.ts';
import { volumeClaims, type VolumeClaims } from './volume-claims.ts';

let server: FakeApiServer | undefined;
afterEach(() => server?.close());

const MINUTE_MS = 60_000;

function claim(id: VolumeId, labels: Record<string, string>, agoMs = 0): KubernetesObject {
  const name = volumeClaimName(id);
  const creationTimestamp = new Date(Date.now() - agoMs).toISOString();
  const ours = { 'cay.dev/installation': 'ours', 'cay.dev/volume': id };
  return { metadata: { name, uid: `of ${id}`, creationTimestamp, labels: { ...ours, ...labels } } };
}

/** A namespace with these claims. */
async function namespaceWith(items: KubernetesObject[]): Promise<VolumeClaims> {
  server = await fakeApiServer({
    answer: (_, response) => response.end(JSON.stringify({ metadata: { resourceVersion: '1' }, items })),
  });
  return volumeClaims({
    client: server.client,
    namespace: 'here',
    installation: 'ours',
    volumes: undefined,
    workloads: { list: async () => [] },
    prepare: async () => {},
  });
}

const MAKING = { 'cay.dev/making': 'true' };

describe('claims that were left half made', () => {
  it('are no volumes, and are left over when they are old', async () => {
    const [kept, young, old] = [newId('vol'), newId('vol'), newId('vol')];
    const volumes = await namespaceWith([
      claim(kept, {}, 60 * MINUTE_MS),
      claim(young, MAKING, MINUTE_MS),
      claim(old, MAKING, 11 * MINUTE_MS),
      { metadata: { ...claim(newId('vol'), MAKING, 60 * MINUTE_MS).metadata, name: 'of-others' } },
    ]);
    expect((await volumes.listVolumes()).map(({ id }) => id)).toEqual([kept]);
    const name = volumeClaimName(old);
    const path = `/api/v1/namespaces/here/persistentvolumeclaims/${name}`;
    expect(await volumes.leftOver()).toEqual([{ kind: 'volume_claim', name, uid: `of ${old}`, path }]);
  });
});

describe('createVolume', () => {
  it('refuses what was not tried, and sizes that nobody says are enforced, before it asks the cluster', async () => {
    const volumes = await namespaceWith([]);
    const from = newId('vol');
    const refused = { code: 'unsupported' };
    await expect(volumes.createVolume(newId('vol'), { sizeBytes: null, from })).rejects.toMatchObject(
      refused,
    );
    await expect(volumes.createVolume(newId('vol'), { sizeBytes: 1 << 30 })).rejects.toMatchObject(refused);
    await expect(
      volumes.createVolume(newId('vol'), { sizeBytes: null, readOnly: true }),
    ).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(server!.asked).toEqual([]);
  });
});
