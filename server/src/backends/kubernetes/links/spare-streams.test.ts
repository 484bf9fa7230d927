import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Pod } from '../client/objects.ts';
import { CONTAINER } from '../workloads/pod-spec.ts';
import { spareStreams } from './spare-streams.ts';

const pod = (uid: string, state: object = { running: {} }): Pod => ({
  metadata: { name: uid, uid },
  status: { containerStatuses: [{ name: CONTAINER, ready: true, restartCount: 0, state }] },
});
const settled = () => new Promise((resolve) => setImmediate(resolve));

function opened() {
  const streams: PassThrough[] = [];
  const spares = spareStreams(async () => {
    const stream = new PassThrough();
    streams.push(stream);
    return stream;
  });
  return { streams, spares };
}

describe('spareStreams', () => {
  it('has one stream to each pod that runs, for one taker', async () => {
    const { streams, spares } = opened();
    for (const each of [pod('a', { waiting: {} }), pod('b'), pod('b')]) spares.see(each, false);
    await settled();
    expect(streams).toHaveLength(1);
    expect(spares.take('a')).toBeUndefined();
    expect(spares.take('b')).toBe(streams[0]);
    spares.see(pod('b'), false);
    await settled();
    expect(spares.take('b')).toBeUndefined();
    expect(streams).toHaveLength(1);
    spares.close();
    expect(streams[0]!.destroyed).toBe(false);
  });

  it('ends the stream of a pod that goes, and all unused ones when it is closed', async () => {
    const { streams, spares } = opened();
    spares.see(pod('a'), false);
    spares.see(pod('b'), false);
    await settled();
    spares.see(pod('a'), true);
    expect(streams.map(({ destroyed }) => destroyed)).toEqual([true, false]);
    spares.close();
    await settled();
    expect(streams.map(({ destroyed }) => destroyed)).toEqual([true, true]);
  });

  it('hands out no stream that has ended, nor one that comes too late', async () => {
    const { streams, spares } = opened();
    spares.see(pod('a'), false);
    expect(spares.take('a')).toBeUndefined();
    await settled();
    expect(streams[0]!.destroyed).toBe(true);
    spares.see(pod('b'), false);
    await settled();
    streams[1]!.destroy(new Error('the API server went away'));
    expect(spares.take('b')).toBeUndefined();
    await settled();
    spares.close();
  });

  it('survives that a stream cannot be had', async () => {
    const spares = spareStreams(async () => {
      throw new Error('refused');
    });
    spares.see(pod('a'), false);
    await settled();
    expect(spares.take('a')).toBeUndefined();
    spares.close();
  });
});
