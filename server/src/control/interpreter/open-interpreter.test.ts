import { createServer, type ServerResponse } from 'node:http';
import { type Duplex, duplexPair } from 'node:stream';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Connection } from '../../guest/guest.ts';
import type { Principal } from '../tenants/principal.ts';
import { openInterpreter } from './open-interpreter.ts';

afterEach(() => vi.restoreAllMocks());

/** A sandbox where another program has the kernel's port, and what the interpreter asks of it. */
function hostile(answers: (url: string, response: ServerResponse) => void) {
  const open = new Set<Duplex>();
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url!);
    request.resume();
    answers(request.url!, response);
  });
  const connect = async (): Promise<Connection> => {
    const [ours, theirs] = duplexPair();
    server.emit('connection', theirs);
    open.add(ours);
    ours.once('close', () => open.delete(ours));
    return {
      readable: ours as AsyncIterable<Uint8Array>,
      write: async (data) => void ours.write(data),
      end: async () => void ours.end(),
      [Symbol.asyncDispose]: async () => {
        ours.destroy();
        theirs.destroy();
      },
    };
  };
  const entered = { guest: { ports: { connect } }, row: { id: 'sbx_a', incarnation: 1 } };
  const interpreter = openInterpreter({ control: { enter: async () => entered } as never });
  return { interpreter, asked, open };
}

const started = (count: number) =>
  `${JSON.stringify({ type: 'number_of_executions', execution_count: count, context: 'main' })}\n`;
const who = { project: 'alice' } as Principal;

describe('a run whose time is up, of a kernel that is another program', () => {
  it('is interrupted once, however often it says that it has begun', async () => {
    const { interpreter, asked } = hostile((url, response) => {
      if (url !== '/execute') return void response.end('{"interrupted":true}');
      response.write(Array.from({ length: 200 }, (_, at) => started(at)).join(''));
      setTimeout(() => response.end(), 200);
    });
    const events = await Array.fromAsync(
      await interpreter.run(who, 'a', { code: '1', timeoutMs: 20 } as never),
    ).catch(() => []);
    expect(events.length).toBeLessThanOrEqual(201);
    expect(asked.filter((url) => url.includes('interrupt'))).toHaveLength(1);
  });

  it('leaves no connection that waits for an answer to the interrupt', async () => {
    const later = new AbortController();
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(later.signal);
    const { interpreter, asked, open } = hostile((url, response) => {
      // An interrupt is never answered.
      if (url === '/execute') response.write(started(1));
    });
    const gone = new AbortController();
    const running = Array.fromAsync(
      await interpreter.run(who, 'a', { code: '1', timeoutMs: 20 } as never, { signal: gone.signal }),
    ).catch(() => []);
    await vi.waitFor(() => expect(asked.some((url) => url.includes('interrupt'))).toBe(true));
    gone.abort();
    await running;
    expect(open.size).toBe(1);
    later.abort();
    await vi.waitFor(() => expect(open.size).toBe(0));
    expect(timeout).toHaveBeenCalledWith(10_000);
  });
});
