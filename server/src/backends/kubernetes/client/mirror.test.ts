import type { ServerResponse } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { mirror } from './mirror.ts';
import type { KubernetesObject } from './objects.ts';
import { fakeApiServer, type FakeApiServer } from '../testing/fake-api-server.ts';

const object = (uid: string, resourceVersion: string): KubernetesObject => ({
  metadata: { name: uid, uid, resourceVersion },
});
const list = (resourceVersion: string, items: KubernetesObject[]) =>
  JSON.stringify({ metadata: { resourceVersion }, items });
const event = (type: string, it: object) => `${JSON.stringify({ type, object: it })}\n`;

describe('mirror', () => {
  let api: FakeApiServer;
  let stop = () => {};
  afterEach(async () => {
    stop();
    await api.close();
  });

  async function open(lists: string[], watches: ((response: ServerResponse) => void)[]) {
    const seen: string[] = [];
    api = await fakeApiServer({
      answer(url, response) {
        if (!url.searchParams.has('watch')) return void response.end(lists.shift() ?? '{}');
        const next = watches.shift();
        if (next) next(response);
        else response.flushHeaders();
      },
    });
    const made = mirror(api.client, {
      path: '/api/v1/things',
      what: 'things',
      selector: 'a=b',
      onChange: (it, gone) =>
        seen.push(`${gone ? '-' : '+'}${it.metadata.uid}@${it.metadata.resourceVersion}`),
    });
    stop = made.close;
    await made.start();
    return { made, seen };
  }

  const until = async (holds: () => boolean) => {
    while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
  };

  it('tells what there is, and then each change once', async () => {
    const { made, seen } = await open(
      [list('10', [object('a', '5'), object('b', '6')])],
      [
        (response) => {
          response.write(
            event('MODIFIED', object('a', '11')) + event('BOOKMARK', { metadata: { resourceVersion: '15' } }),
          );
          response.end(event('DELETED', object('b', '16')));
        },
      ],
    );
    await until(() => seen.length === 4);
    expect(seen).toEqual(['+a@5', '+b@6', '+a@11', '-b@16']);
    expect([...made.objects.keys()]).toEqual(['a']);
  });

  it('goes on from where a watch has ended', async () => {
    const { seen } = await open(
      [list('10', [])],
      [
        (response) => response.end(event('ADDED', object('a', '12'))),
        (response) => response.end(event('ADDED', object('b', '14'))),
      ],
    );
    await until(() => seen.length === 2);
    await until(() => api.asked.length >= 4);
    const versions = api.asked.map((path) =>
      new URL(path.slice(4), 'http://x').searchParams.get('resourceVersion'),
    );
    expect(versions.slice(0, 4)).toEqual([null, '10', '12', '14']);
  });

  it.each([
    ['an event', (response: ServerResponse) => response.end(event('ERROR', { kind: 'Status', code: 410 }))],
    [
      'the status',
      (response: ServerResponse) =>
        void response.writeHead(410).end('{"message":"too old resource version"}'),
    ],
  ])(
    'lists again when its resource version has expired (410 as %s), and reports what it has missed',
    async (_, expired) => {
      const { made, seen } = await open(
        [list('10', [object('a', '5'), object('b', '6')]), list('90', [object('b', '6'), object('c', '80')])],
        [expired, (response) => response.write(event('MODIFIED', object('c', '91')))],
      );
      await until(() => seen.length === 5);
      expect(seen).toEqual(['+a@5', '+b@6', '-a@5', '+c@80', '+c@91']);
      expect([...made.objects.keys()].sort()).toEqual(['b', 'c']);
    },
  );

  it('survives a server that hangs up in the middle of a line', async () => {
    const { seen } = await open(
      [list('10', []), list('20', [object('a', '19')])],
      [
        (response) => {
          response.write('{"type":"ADD');
          response.destroy();
        },
        (response) => response.write(event('ADDED', object('a', '19'))),
      ],
    );
    await until(() => seen.includes('+a@19'));
    expect(seen).toEqual(['+a@19']);
  });

  it('rejects when the first list cannot be had, and can be started again', async () => {
    let fails = true;
    api = await fakeApiServer({
      answer(url, response) {
        if (url.searchParams.has('watch')) {
          response.flushHeaders();
          return;
        }
        if (fails) return void response.writeHead(403).end('{"message":"things is forbidden"}');
        response.end(list('1', []));
      },
    });
    const made = mirror(api.client, {
      path: '/api/v1/things',
      what: 'things',
      selector: 'a=b',
      onChange: () => {},
    });
    stop = made.close;
    await expect(made.start()).rejects.toMatchObject({ code: 'permission_denied' });
    fails = false;
    await made.start();
  });
});
