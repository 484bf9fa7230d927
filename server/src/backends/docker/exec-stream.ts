import { Duplex } from 'node:stream';
import { CayError } from '@cay/sdk/protocol';
import type { DockerClient } from './docker-client.ts';
import { demux } from './demux.ts';

export interface ExecStreamOptions {
  container: string;
  argv: string[];
  action: string;
  signal?: AbortSignal;
}

const MAX_STDERR = 4096;
const STDERR = 2;

/**
 * Runs a program in the container as root, and is its standard input and output. What it says on
 * standard error becomes the message with which the stream fails when the program ends unasked.
 */
export async function execStream(client: DockerClient, options: ExecStreamOptions): Promise<Duplex> {
  const { container, argv, action, signal } = options;
  const made = (await client.json('POST', `/containers/${container}/exec`, {
    action,
    signal,
    body: {
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: false,
      User: '0:0',
      WorkingDir: '/',
      Cmd: argv,
    },
  })) as { Id: string };
  // The signal covers the making only: a request's own would end the stream later as well.
  const starting = new AbortController();
  const abort = () => starting.abort(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  try {
    signal?.throwIfAborted();
    const socket = await client.hijack(`/exec/${made.Id}/start`, {
      action,
      body: { Detach: false, Tty: false },
      signal: starting.signal,
    });
    return overSocket(socket, action);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

function overSocket(socket: Duplex, action: string): Duplex {
  const take = demux();
  let said = '';
  const stream = new Duplex({
    write(part: Buffer, _encoding, done) {
      socket.write(part, done);
    },
    final(done) {
      socket.end(done);
    },
    read() {
      socket.resume();
    },
    destroy(error, done) {
      socket.destroy();
      done(error);
    },
  });
  socket.on('data', (part: Buffer) => {
    try {
      take(part, (channel, data) => {
        if (channel === STDERR) said = (said + data.toString()).slice(0, MAX_STDERR);
        else if (!stream.push(data)) socket.pause();
      });
    } catch (error) {
      stream.destroy(error as Error);
    }
  });
  socket.on('end', () => {
    if (said !== '') stream.destroy(new CayError('unavailable', `Cannot ${action}: ${said.trim()}`));
    else stream.push(null);
  });
  socket.on('error', (error) => stream.destroy(error));
  socket.on('close', () => stream.destroy());
  return stream;
}
