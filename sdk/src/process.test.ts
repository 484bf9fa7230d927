import { describe, expect, it } from 'vitest';
import { openProcess, type Process } from './process.ts';

/** A WebSocket that can pause, as that of the package "ws", without a connection. */
class PausableSocket extends EventTarget {
  paused = false;
  readonly bufferedAmount = 0;

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  send(): void {}

  close(): void {
    this.dispatchEvent(new Event('close'));
  }

  arrive(data: string | Uint8Array): void {
    this.dispatchEvent(
      new MessageEvent('message', { data: typeof data === 'string' ? data : data.slice().buffer }),
    );
  }
}

async function attached(): Promise<{ socket: PausableSocket; command: Process }> {
  const socket = new PausableSocket();
  const opening = openProcess(socket as unknown as WebSocket, {});
  socket.arrive('{"type":"started","id":"cmd_1","pid":7}');
  return { socket, command: await opening };
}

/** How many messages arrive before the socket is paused. */
function untilPaused(socket: PausableSocket, message: Uint8Array): number {
  let count = 0;
  while (!socket.paused && count < 200_000) {
    socket.arrive(message);
    count++;
  }
  return count;
}

describe('Process', () => {
  it.each([1, 1000, 1024 * 1024])(
    'pauses the socket while messages of %s bytes are not read',
    async (size) => {
      const { socket, command } = await attached();
      const count = untilPaused(socket, new Uint8Array(1 + size).fill(1));
      expect(count * (size + 256)).toBeLessThan(6 * 1024 * 1024);
      let read = 0;
      for await (const { data } of command) {
        read += data.length;
        if (!socket.paused) break;
      }
      expect(read).toBeLessThan(count * size);
      expect(command.offset).toBe(count * size);
    },
  );

  it('keeps nothing of messages without output', async () => {
    const { socket, command } = await attached();
    for (let count = 0; count < 1000; count++) socket.arrive(Uint8Array.of(1));
    socket.arrive('{"type":"end","end":{"kind":"exited","exitCode":3}}');
    expect(await Array.fromAsync(command)).toEqual([]);
    expect(await command.wait()).toMatchObject({ exitCode: 3 });
  });

  it.each([
    '<html>',
    'null',
    '[]',
    '{"type":"end"}',
    '{"type":"end","end":{"kind":"exited"}}',
    '{"type":"end","end":{"kind":"melted"}}',
    '{"type":"error"}',
  ])('rejects when the server sends %s', async (message) => {
    const { socket, command } = await attached();
    socket.arrive(message);
    await expect(command.ended).rejects.toMatchObject({ code: 'internal' });
    await expect(Array.fromAsync(command)).rejects.toMatchObject({ code: 'internal' });
  });

  it('passes over events of types that it does not know', async () => {
    const { socket, command } = await attached();
    socket.arrive('{"type":"weather"}');
    socket.arrive('{"type":"end","end":{"kind":"exited","exitCode":0}}');
    expect(await command.wait()).toMatchObject({ exitCode: 0 });
  });
});
