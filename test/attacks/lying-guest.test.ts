import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { FRAME, HEADER_BYTES, writeHeader } from '../../server/src/guest/frame.ts';
import { e2bSandbox, type E2bSandbox } from './support/e2b-sandbox.ts';
import { takeLink, type Asked, type LyingGuest, type TakenLink } from './support/lying-guest.ts';
import { onEachPlatform } from './support/platforms.ts';
import type { Target } from './support/target.ts';
import { watchServer } from './support/watch-server.ts';

const MiB = 1024 ** 2;
const FILE = { name: 'x', path: '/x', type: 'file', size: 0, mode: 0o644, uid: 0, gid: 0, mtimeMs: 0 };

function frames(type: number, stream: number, payload: Uint8Array, count: number, channels = [0]): Buffer {
  const all = Array.from({ length: count }, (_, index) => {
    const head = Buffer.alloc(HEADER_BYTES);
    writeHeader(head, 0, {
      length: payload.length,
      type,
      channel: channels[index % channels.length]!,
      stream,
    });
    return Buffer.concat([head, payload]);
  });
  return Buffer.concat(all);
}

onEachPlatform('a guest that lies', (platform) => {
  let target: Target;
  let sandbox: E2bSandbox;
  let link: TakenLink;
  let liar: LyingGuest;
  beforeAll(async () => {
    target = await platform.start();
    await target.bob.create();
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  beforeEach(async () => {
    sandbox = await e2bSandbox(target);
    link = await takeLink(target, sandbox.id);
    liar = await link.next();
    liar.onAsked = answer;
    return async () => {
      liar.close();
      link.close();
      await target.requireAlive();
      await target.alice.call('DELETE', `/v1/sandboxes/${sandbox.id}`);
    };
  }, 60_000);

  /** What a guest would say of an empty sandbox. */
  function answer({ op, stream }: Asked): void {
    if (op === 'stat') liar.message(stream, { info: FILE });
    else if (op === 'read') liar.message(stream, { info: FILE });
    else if (op === 'xattrs') liar.message(stream, { attrs: {} });
    if (op === 'list' || op === 'read') liar.end(stream);
  }

  const endless = async (stream: number) => {
    const piece = frames(FRAME.data, stream, Buffer.alloc(32 * 1024, 'x'), 1);
    try {
      for (;;) await liar.raw(piece);
    } catch {
      // The server has hung up.
    }
  };

  it('cannot send more of a file than was asked for', { timeout: 60_000 }, async () => {
    liar.onAsked = (asked) => {
      answer({ ...asked, op: asked.op === 'read' ? 'begin' : asked.op });
      if (asked.op !== 'read') return;
      liar.message(asked.stream, { info: FILE });
      void endless(asked.stream);
    };
    const { grownBytes } = await watchServer(target, async () => {
      const reply = await sandbox.call('filesystem.Filesystem/Stat', { path: 'relative' });
      expect(reply.status).toBeGreaterThanOrEqual(400);
    });
    expect(grownBytes).toBeLessThan(200 * MiB);
  });

  it('has a file without size streamed, however long it is', { timeout: 60_000 }, async () => {
    liar.onAsked = (asked) => {
      const opening = asked.op === 'read' && asked.request['path'] === '/tmp/endless';
      answer({ ...asked, op: opening ? 'begin' : asked.op });
      if (!opening) return;
      liar.message(asked.stream, { info: FILE });
      void endless(asked.stream);
    };
    const { grownBytes } = await watchServer(target, async () => {
      await sandbox.get('/files?path=/tmp/endless', AbortSignal.timeout(3000)).catch(() => undefined);
    });
    expect(grownBytes).toBeLessThan(200 * MiB);
  });

  it('gains nothing by sending bytes one by one, on two channels in turn', { timeout: 60_000 }, async () => {
    liar.onAsked = (asked) => {
      if (asked.op !== 'exec') return answer(asked);
      liar.message(asked.stream, { event: 'started', pid: 7, offset: 0, existing: false });
      void liar.raw(frames(FRAME.data, asked.stream, Buffer.from('x'), 120_000, [1, 2])).catch(() => {});
    };
    const { grownBytes, loopMs } = await watchServer(target, async () => {
      // Those who wait have it collected; those who stream and do not read have it queued.
      const body = { argv: ['x'], maxOutputBytes: 8 * MiB };
      const waiting = Array.from({ length: 10 }, () =>
        target.alice
          .call('POST', `/v1/sandboxes/${sandbox.id}/exec`, { body, signal: AbortSignal.timeout(4000) })
          .catch(() => undefined),
      );
      await Promise.all(waiting);
    });
    expect(grownBytes).toBeLessThan(300 * MiB);
    expect(loopMs).toBeLessThan(1000);
  });

  it('gains nothing by messages of a million values', { timeout: 60_000 }, async () => {
    // A map with `entries`, which is an array of 1,000,000 empty maps.
    const many = Buffer.concat([
      Buffer.from('a167656e7472696573', 'hex'),
      Buffer.from('9a000f4240', 'hex'),
      Buffer.alloc(1_000_000, 0xa0),
    ]);
    liar.onAsked = (asked) => {
      if (asked.op !== 'list') return answer(asked);
      void liar.raw(frames(FRAME.message, asked.stream, many, 1)).catch(() => {});
    };
    const { grownBytes } = await watchServer(target, async () => {
      const reply = await target.alice.call('GET', `/v1/sandboxes/${sandbox.id}/files/list?path=/`);
      expect([reply.status, reply.json.error.message]).toEqual([503, expect.stringContaining('values')]);
    });
    expect(grownBytes).toBeLessThan(200 * MiB);
  });

  it('makes no caller wait by frames that mean nothing', { timeout: 60_000 }, async () => {
    const floods = [
      frames(FRAME.end, 99_999, Buffer.alloc(0), 20_000),
      frames(FRAME.credit, 77, Buffer.alloc(4), 20_000),
      frames(FRAME.pong, 0, Buffer.alloc(4), 20_000),
    ];
    const { loopMs } = await watchServer(target, async () => {
      const until = performance.now() + 4000;
      while (performance.now() < until) for (const flood of floods) await liar.raw(flood);
    });
    expect(loopMs).toBeLessThan(300);
  });

  it('cannot break an answer with times, names and sizes out of range', { timeout: 60_000 }, async () => {
    const infos = [
      { ...FILE, type: 'directory', mtimeMs: Number.MAX_SAFE_INTEGER },
      { ...FILE, type: 'directory', mtimeMs: -Number.MAX_SAFE_INTEGER },
      { ...FILE, type: 'directory', name: 'a\0b', path: '/../..' },
      { ...FILE, type: 'directory', size: Number.MAX_SAFE_INTEGER, path: `/${'p'.repeat(200_000)}` },
    ];
    for (const info of infos) {
      liar.onAsked = (asked) => {
        if (asked.op === 'stat') return liar.message(asked.stream, { info });
        if (asked.op !== 'list') return answer(asked);
        liar.message(asked.stream, { entries: [info] });
        liar.end(asked.stream);
      };
      expect((await sandbox.call('filesystem.Filesystem/Stat', { path: '/x' })).status).toBe(200);
      expect((await sandbox.call('filesystem.Filesystem/ListDir', { path: '/x' })).status).toBe(200);
      expect((await target.alice.call('GET', `/v1/sandboxes/${sandbox.id}/files/list?path=/`)).status).toBe(
        200,
      );
    }
  });

  it('affects its own sandbox alone by connecting again and again', { timeout: 60_000 }, async () => {
    const other = await target.bob.create();
    const { loopMs } = await watchServer(target, async () => {
      let over = false;
      const again = async () => {
        while (!over) (await link.next({ boot: Buffer.alloc(16, 9) })).close();
      };
      const connecting = Array.from({ length: 50 }, () => again().catch(() => {}));
      const working = sleep(3000);
      expect((await target.bob.exec(other.id, ['echo', 'mine'])).stdout).toBe('mine\n');
      await working;
      over = true;
      await Promise.race([Promise.all(connecting), sleep(1000)]);
    });
    expect(loopMs).toBeLessThan(300);
  });
});
